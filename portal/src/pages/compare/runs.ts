/** Which runs are compared, in which order: the first is the baseline. */

/** At most so many are compared. */
export const MOST = 8;

/** Each once, as many as can be compared. */
export function usable(runs: readonly string[]): readonly string[] {
  return [...new Set(runs)].slice(0, MOST);
}

/** With another run at the end; as it was where it is in, or there are too many. */
export function added(runs: readonly string[], run: string): readonly string[] {
  return runs.includes(run) || runs.length >= MOST ? runs : [...runs, run];
}

export function removed(runs: readonly string[], run: string): readonly string[] {
  return runs.filter((one) => one !== run);
}

/** With a run moved by some places; it stops at the ends. */
export function shifted(runs: readonly string[], run: string, by: number): readonly string[] {
  const from = runs.indexOf(run);
  if (from < 0) return runs;
  const rest = removed(runs, run);
  const to = Math.min(Math.max(from + by, 0), rest.length);
  return [...rest.slice(0, to), run, ...rest.slice(to)];
}

/** With a run as baseline. */
export function based(runs: readonly string[], run: string): readonly string[] {
  return shifted(runs, run, -runs.length);
}

/** A run by a letter, as the page names it: A is the baseline. */
export function letter(at: number): string {
  return String.fromCharCode(65 + at);
}
