/** The portal's clock: times in answers are its own, and a laptop's clock may be minutes off. */

let ahead = 0;

/** Takes note of an answer's `Date`. */
export function noteDate(date: string | null): void {
  const at = date === null ? NaN : Date.parse(date);
  if (Number.isNaN(at)) return;
  const found = at / 1000 - Date.now() / 1000;
  // `Date` has whole seconds, and the way takes time: small differences say nothing.
  ahead = Math.abs(found) < 2 ? 0 : found;
}

/** Now by the portal's clock, seconds since the epoch. */
export function now(): number {
  return Date.now() / 1000 + ahead;
}
