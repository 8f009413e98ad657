/** The search part of a page's URL: checked when read, written without defaults. */

/** As it comes from the URL: a name's values. */
export type Raw = Readonly<Record<string, unknown>>;

export interface Field<T> {
  readonly fallback: T;
  read(value: unknown): T;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;
type Values<F extends Fields> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

/** Search parameters of a page. */
export interface Search<F extends Fields> {
  readonly fields: F;
  /** All values; what is missing or bad becomes the default. */
  values(raw: Raw): Values<F>;
  /** Only what differs from the default: what the router keeps. */
  validate(raw: Raw): Partial<Values<F>>;
}

/** The values of a page's search parameters. */
export type SearchOf<S> = S extends Search<infer F> ? Values<F> : never;

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Search parameters of a page, from their fields. */
export function searchOf<F extends Fields>(fields: F): Search<F> {
  const read = (raw: Raw): [string, unknown, unknown][] =>
    Object.entries(fields).map(([name, field]) => [name, raw[name] === undefined ? field.fallback : field.read(raw[name]), field.fallback]);
  return {
    fields,
    values: (raw) => Object.fromEntries(read(raw).map(([name, value]) => [name, value])) as Values<F>,
    validate: (raw) =>
      Object.fromEntries(read(raw).filter(([, value, fallback]) => !same(value, fallback)).map(([name, value]) => [name, value])) as Partial<Values<F>>,
  };
}

function first(value: unknown): unknown {
  return Array.isArray(value) ? (value as unknown[])[0] : value;
}

function word(value: unknown): string | null {
  const one = first(value);
  return typeof one === "string" || typeof one === "number" || typeof one === "boolean" ? String(one) : null;
}

/** A text. */
export function text(fallback = ""): Field<string> {
  return { fallback, read: (value) => word(value)?.slice(0, 500) ?? fallback };
}

/** Several texts, in their order. */
export function list(fallback: readonly string[] = []): Field<readonly string[]> {
  return {
    fallback,
    read: (value) =>
      (Array.isArray(value) ? (value as unknown[]) : [value]).map(word).filter((one): one is string => one !== null && one !== "").slice(0, 100),
  };
}

/** A number, or nothing. */
export function number(): Field<number | null>;
export function number(fallback: number): Field<number>;
export function number(fallback: number | null = null): Field<number | null> {
  return {
    fallback,
    read: (value) => {
      const found = word(value);
      const amount = found === null || found.trim() === "" ? NaN : Number(found);
      return Number.isFinite(amount) ? amount : fallback;
    },
  };
}

/** Yes or no. */
export function flag(fallback = false): Field<boolean> {
  return { fallback, read: (value) => (["1", "true"].includes(word(value) ?? "") ? true : ["0", "false"].includes(word(value) ?? "") ? false : fallback) };
}

/** One of some words. */
export function choice<const T extends string>(words: readonly T[], fallback: NoInfer<T>): Field<T> {
  return { fallback, read: (value) => words.find((one) => one === word(value)) ?? fallback };
}

/** A search string as values by name: a repeated name becomes an array. */
export function parseSearch(searched: string): Record<string, string | string[]> {
  const found: Record<string, string | string[]> = {};
  const given = new URLSearchParams(searched);
  for (const name of new Set(given.keys())) {
    const values = given.getAll(name);
    found[name] = values.length > 1 ? values : (values[0] ?? "");
  }
  return found;
}

/** The way back: arrays stand once for each value, yes and no as 1 and 0. */
export function stringifySearch(search: Readonly<Record<string, unknown>>): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    if (value === undefined || value === null) continue;
    const values = Array.isArray(value) ? (value as unknown[]) : [value];
    if (Array.isArray(value) && value.length === 0) found.append(name, "");
    for (const one of values) found.append(name, typeof one === "boolean" ? (one ? "1" : "0") : String(one));
  }
  const written = found.toString();
  return written ? `?${written}` : "";
}
