/** Which trends stand in the heat map, and what is known of their changes. */

import type { Regression, TrendRow } from "../../api/schema";
import type { Search } from "./search";

/** Seconds since the epoch from which on trends are asked for. */
export function sinceOf(search: Search, now: number): number {
  // Whole days: the same question gets the same answer for a day.
  return search.since === "all" ? 0 : (Math.floor(now / 86_400) - Number(search.since)) * 86_400;
}

/** Whether a change is acknowledged now. */
export function isMuted(change: Regression, now: number): boolean {
  const told = change.acknowledged;
  return told !== null && told !== undefined && (told.until === null || told.until === undefined || told.until > now);
}

/** The newest change for the worse without an acknowledgement; null: none, or it has been made good since. */
export function alarmOf(row: TrendRow, now: number): Regression | null {
  const last = row.changes.at(-1);
  return last?.worse && !isMuted(last, now) ? last : null;
}

/** Whether the newest change is for the worse, and acknowledged. */
export function mutedOf(row: TrendRow, now: number): Regression | null {
  const last = row.changes.at(-1);
  return last?.worse && isMuted(last, now) ? last : null;
}

/** The rows with more than one run that pass what the server does not filter by, in the order they came in. */
export function passing(rows: readonly TrendRow[], search: Search, now: number): TrendRow[] {
  const text = search.text.toLowerCase();
  return rows.filter(
    (row) =>
      row.points.length > 1 &&
      (text === "" || `${row.run_task} ${row.model} ${row.plan} ${row.name}`.toLowerCase().includes(text)) &&
      (!search.fell || alarmOf(row, now) !== null) &&
      (search.muted || mutedOf(row, now) === null),
  );
}

/** The page in a sentence. */
export function sentence(rows: readonly TrendRow[], now: number): string {
  const fell = rows.filter((row) => alarmOf(row, now) !== null).length;
  const muted = rows.filter((row) => mutedOf(row, now) !== null).length;
  const all = `${rows.length} ${rows.length === 1 ? "trend" : "trends"}`;
  const told = fell === 0 ? `none of ${all} is at a worse level` : `${fell} of ${all} ${fell === 1 ? "is" : "are"} at a worse level`;
  return muted === 0 ? `${told}.` : `${told}; ${muted} more acknowledged.`;
}
