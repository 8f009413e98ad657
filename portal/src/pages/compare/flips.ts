/** Samples of a comparison by what the candidate did, as lengths of a bar. */

import type { Change } from "./search";

export interface Counts {
  readonly lost: number;
  readonly won: number;
  readonly both_wrong: number;
  readonly both_partly: number;
  readonly both_right: number;
}

export interface Segment {
  readonly change: Change;
  readonly count: number;
  /** Percent of the bar. */
  readonly width: number;
}

/** In which order they stand: what needs a look comes first. */
const ORDER = ["lost", "won", "both_wrong", "both_partly", "both_right"] as const;

export const WORDS: Readonly<Record<Change, string>> = {
  lost: "lost",
  won: "won",
  both_wrong: "both wrong",
  both_partly: "both partly right",
  both_right: "both right",
};

/** Percent of the bar that a segment has at least, so that one sample in a million can be seen and clicked. */
const LEAST = 3;

/** The bar's segments, without those that are empty; widths come to 100. */
export function segments(counts: Counts): Segment[] {
  const total = ORDER.reduce((sum, change) => sum + counts[change], 0);
  if (total === 0) return [];
  const shown = ORDER.filter((change) => counts[change] > 0);
  const share = (change: (typeof ORDER)[number]) => (100 * counts[change]) / total;
  const small = shown.filter((change) => share(change) < LEAST);
  const rest = shown.filter((change) => share(change) >= LEAST);
  const room = 100 - LEAST * small.length;
  const whole = rest.reduce((sum, change) => sum + share(change), 0);
  return shown.map((change) => ({
    change,
    count: counts[change],
    width: small.includes(change) ? LEAST : (share(change) / whole) * room,
  }));
}

/** The bar in words. */
export function described(counts: Counts): string {
  const told = segments(counts).map((one) => `${one.count.toLocaleString("en")} ${WORDS[one.change]}`);
  return told.length > 0 ? told.join(", ") : "no pairs";
}

/** A score of a sample; a dash where there is none. */
export function score(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : value.toFixed(3);
}

/** How a score changed, with its sign; empty where one of both is missing. */
export function signedChange([before, after]: readonly [number | null, number | null] | readonly (number | null)[]): string {
  if (typeof before !== "number" || typeof after !== "number") return "";
  const change = after - before;
  return `(${change > 0 ? "+" : change < 0 ? "−" : "±"}${Math.abs(change).toFixed(3)})`;
}
