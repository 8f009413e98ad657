/** Reading records whose fields no type promises: parts of metrics.json, performance.json, verdict.json. */

export type Entry = Readonly<Record<string, unknown>>;

/** A record; null where it is something else. */
export function entryOf(value: unknown): Entry | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Entry) : null;
}

/** Records of a list; what is none is left out. */
export function entriesOf(value: unknown): readonly Entry[] {
  return Array.isArray(value) ? value.map(entryOf).filter((one) => one !== null) : [];
}

export function numberIn(entry: Entry | null | undefined, name: string): number | null {
  const value = entry?.[name];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function textIn(entry: Entry | null | undefined, name: string): string {
  const value = entry?.[name];
  return typeof value === "string" ? value : "";
}

export function listIn(entry: Entry | null | undefined, name: string): readonly unknown[] {
  const value = entry?.[name];
  return Array.isArray(value) ? (value as unknown[]) : [];
}

/** Any value in a line: text as it is, the rest as JSON. */
export function shown(value: unknown): string {
  if (value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
