/** Strips that grow by what came since. Pure. */

interface Strip {
  readonly worker: string;
  readonly what: string;
  readonly device: string;
  readonly times: readonly number[];
  readonly values: readonly (number | null)[];
}

interface Readings<S extends Strip, M> {
  readonly strips: readonly S[];
  readonly marks: readonly M[];
  readonly until: number;
}

/** Points of a strip beyond which all is asked for again: the server thins it out. */
export const MOST_POINTS = 1500;

function nameOf({ worker, what, device }: Strip): string {
  return `${worker}\n${what}\n${device}`;
}

/** Readings with newer ones behind them; strips that are new come last, what was there already is left out. */
export function merged<S extends Strip, M, R extends Readings<S, M>>(before: R, newer: R): R {
  const late = new Map(newer.strips.map((strip) => [nameOf(strip), strip]));
  const strips = before.strips.map((strip) => {
    const more = late.get(nameOf(strip));
    late.delete(nameOf(strip));
    return more ? behind(strip, more) : strip;
  });
  const known = new Set(before.marks.map((mark) => JSON.stringify(mark)));
  const marks = newer.marks.filter((mark) => !known.has(JSON.stringify(mark)));
  return {
    ...newer,
    strips: [...strips, ...late.values()],
    marks: [...before.marks, ...marks],
    until: Math.max(before.until, newer.until),
  };
}

function behind<S extends Strip>(strip: S, more: S): S {
  const last = strip.times.at(-1) ?? -Infinity;
  const from = more.times.findIndex((time) => time > last);
  if (from < 0) return strip;
  return { ...strip, times: [...strip.times, ...more.times.slice(from)], values: [...strip.values, ...more.values.slice(from)] };
}

/** Points of the longest strip. */
export function longest(readings: { readonly strips: readonly Strip[] }): number {
  return readings.strips.reduce((most, strip) => Math.max(most, strip.times.length), 0);
}
