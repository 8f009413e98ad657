/** What may be said of a difference: nothing without an interval and the number of pairs. */

export type Verdict = "better" | "worse" | "equivalent" | "inconclusive" | "none";

export interface Judged {
  readonly difference: number | null;
  readonly low: number | null;
  readonly high: number | null;
  readonly n: number;
  readonly verdict: string;
}

const SAID: readonly string[] = ["better", "worse", "equivalent", "inconclusive"];

/** The verdict to be shown; `none` where the figures that it needs are not there. */
export function verdictOf(row: Judged): Verdict {
  if (row.difference === null || row.low === null || row.high === null || row.n < 1) return "none";
  return SAID.includes(row.verdict) ? (row.verdict as Verdict) : "none";
}

/** Why there is none, for people. */
export function whyNone(row: Judged): string {
  if (row.n < 1) return "no verdict: no pairs";
  if (row.difference === null) return "no verdict: no difference";
  return "no verdict: no interval";
}

/** With a sign before the number, also next to zero: `+0.021`, `−0.068`, `0.000`. */
export function signed(value: number, digits = 3): string {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value > 0 ? "+" : "−") + text;
}

/** `[−0.117, −0.020]`. */
export function interval(low: number, high: number, digits = 3): string {
  return `[${signed(low, digits)}, ${signed(high, digits)}]`;
}

/** How many digits tell values of a size apart: three below 10, less above. */
export function digitsFor(...values: readonly (number | null)[]): number {
  const largest = Math.max(0, ...values.map((one) => Math.abs(one ?? 0)));
  if (largest < 10) return 3;
  return largest < 1000 ? 1 : 0;
}

/** Where a difference and its interval lie on a strip, in percent of its width; zero is in the middle. */
export function onStrip(row: Judged, reach: number): { left: number; width: number; at: number } | null {
  if (row.difference === null || row.low === null || row.high === null || reach <= 0) return null;
  const place = (value: number) => 50 + (50 * Math.min(Math.max(value, -reach), reach)) / reach;
  const left = place(row.low);
  return { left, width: Math.max(1, place(row.high) - left), at: place(row.difference) };
}

/** The greatest end of all intervals: how far strips reach, so that they share a scale. */
export function reachOf(rows: readonly Judged[]): number {
  return Math.max(0, ...rows.flatMap((row) => [Math.abs(row.low ?? 0), Math.abs(row.high ?? 0)]));
}
