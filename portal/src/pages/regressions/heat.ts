/**
 * The heat map: figures over time as steps of a diverging scale.
 *
 * A cell says how far a value is from where its row began (the level before its first change, else the middle
 * of its values), with the sign turned so that more is always better. Shares are told in points, all else in
 * percent. Each cell has its number as text: colour is never all there is.
 */

export interface HeatPoint {
  readonly experiment: string;
  readonly time: number;
  readonly value: number;
}

export interface HeatChange {
  readonly id: string;
  readonly before: number;
  readonly first: string;
  readonly last_good: string;
  readonly worse: boolean;
}

export interface HeatRow {
  readonly name: string;
  readonly kind: string;
  readonly higher_is_better: boolean;
  readonly points: readonly HeatPoint[];
  readonly changes: readonly HeatChange[];
}

/** A stretch of time: a column. */
export interface Bucket {
  /** Seconds since the epoch. */
  readonly begin: number;
  readonly end: number;
  readonly label: string;
}

export interface Cell<P extends HeatPoint, C extends HeatChange> {
  /** The newest of the stretch. */
  readonly point: P;
  /** How many the stretch has. */
  readonly count: number;
  /** How far it is from the row's beginning; above zero is better. */
  readonly shift: number;
  /** From -3, much worse, to 3. */
  readonly step: number;
  /** The change that begins here. */
  readonly change: C | null;
}

const HOUR = 3600;
const DAY = 24 * HOUR;

/** Lengths that columns may have, and how their beginnings are told. */
const LENGTHS: readonly (readonly [number, Intl.DateTimeFormatOptions])[] = [
  [HOUR, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }],
  [6 * HOUR, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }],
  [DAY, { day: "numeric", month: "short" }],
  [7 * DAY, { day: "numeric", month: "short" }],
  [28 * DAY, { day: "numeric", month: "short", year: "2-digit" }],
];

/** Columns at most. */
const MOST = 60;

/** From which shift on a cell has which step: points of shares, percent of all else. */
const STEPS = [1, 3, 8] as const;

/** Columns for all points, empty stretches left out: as many as tell runs apart, and not too many. */
export function buckets(rows: readonly HeatRow[]): Bucket[] {
  const times = [...new Set(rows.flatMap((row) => row.points.map((point) => point.time)))].sort((a, b) => a - b);
  const choices = LENGTHS.map(([length, told]) => ({
    length,
    told,
    begins: [...new Set(times.map((time) => Math.floor(time / length) * length))],
  }));
  const few = choices.filter(({ begins }) => begins.length <= MOST);
  const most = Math.max(...few.map(({ begins }) => begins.length));
  // Of those that tell as much the longest: nights are days, not hours.
  const chosen = few.findLast(({ begins }) => begins.length === most) ?? choices.at(-1);
  if (!chosen) return [];
  const format = new Intl.DateTimeFormat("en-GB", { ...chosen.told, timeZone: "UTC" });
  return chosen.begins.map((begin) => ({ begin, end: begin + chosen.length, label: format.format(begin * 1000) }));
}

/** A row's cells, one a column; null where it has no value. */
export function cellsOf<P extends HeatPoint, C extends HeatChange>(
  row: Omit<HeatRow, "points" | "changes"> & { readonly points: readonly P[]; readonly changes: readonly C[] },
  columns: readonly Bucket[],
): (Cell<P, C> | null)[] {
  const level = levelOf(row);
  const changes = new Map(row.changes.map((change) => [change.first, change]));
  return columns.map((column) => {
    const within = row.points.filter((point) => point.time >= column.begin && point.time < column.end);
    const point = within.at(-1);
    if (!point) return null;
    const shift = shiftOf(row, level, point.value);
    const change = within.map((one) => changes.get(one.experiment)).findLast((one) => one !== undefined);
    return { point, count: within.length, shift, step: stepOf(shift), change: change ?? null };
  });
}

/** Where a row began. */
export function levelOf(row: HeatRow): number {
  const before = row.changes[0]?.before;
  if (before !== undefined) return before;
  const values = row.points.map((point) => point.value).sort((a, b) => a - b);
  const middle = Math.floor(values.length / 2);
  const upper = values[middle] ?? 0;
  return values.length % 2 === 1 ? upper : ((values[middle - 1] ?? 0) + upper) / 2;
}

/** Whether a row's shifts are points of a share; else percent. */
export function inPoints(row: HeatRow): boolean {
  return row.kind === "quality" || row.kind === "coverage"
    ? row.points.every((point) => point.value >= 0 && point.value <= 1)
    : false;
}

/** Points or percent from a level to a value, above zero where it is better. */
export function shiftOf(row: HeatRow, level: number, value: number): number {
  const towards = row.higher_is_better ? 1 : -1;
  if (inPoints(row)) return 100 * (value - level) * towards || 0;
  if (level === 0) return 0;
  return ((100 * (value - level)) / Math.abs(level)) * towards || 0;
}

/** The step of the scale for a shift, from -3 to 3. */
export function stepOf(shift: number): number {
  const size = STEPS.filter((least) => Math.abs(shift) >= least).length;
  return shift < 0 ? -size || 0 : size;
}

/** A shift as a cell has it: `−4.2`, `+12`, `0`. */
export function shown(shift: number): string {
  const size = Math.abs(shift);
  const text = size >= 9.95 ? size.toFixed(0) : size.toFixed(1);
  if (Number(text) === 0) return "0";
  return (shift < 0 ? "−" : "+") + text;
}

/** The scale's steps, for its legend. */
export function legend(): { readonly step: number; readonly text: string }[] {
  const [one, two, three] = STEPS;
  return [
    { step: -3, text: `worse by ${three} or more` },
    { step: -2, text: `worse by ${two} to ${three}` },
    { step: -1, text: `worse by ${one} to ${two}` },
    { step: 0, text: `less than ${one}` },
    { step: 1, text: `better by ${one} to ${two}` },
    { step: 2, text: `better by ${two} to ${three}` },
    { step: 3, text: `better by ${three} or more` },
  ];
}
