/**
 * The heat map: figures over time as steps of a diverging scale.
 *
 * A cell is one run. It says how far its value is from the row's first run that is shown, with the sign turned so
 * that more is always better. Shares are in points, all other figures in percent. Each cell has its number as text, so no reader depends on colour.
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

/** A column: runs of one day, of which each row has one at most. */
export interface Column {
  /** Time of its first run, seconds since the epoch. */
  readonly begin: number;
  /** Time of its last run; the same where there is one. */
  readonly end: number;
  /** Its experiments. */
  readonly runs: ReadonlySet<string>;
  /** Its day. */
  readonly day: string;
  /** When within its day; empty where the day has no other column. */
  readonly clock: string;
}

export interface Cell<P extends HeatPoint, C extends HeatChange> {
  /** The run. */
  readonly point: P;
  /** How far it is from the row's first run; above zero is better. */
  readonly shift: number;
  /** From -3, much worse, to 3. */
  readonly step: number;
  /** The change that begins here. */
  readonly change: C | null;
}

/** Columns at most; the oldest are left out. */
export const MOST_COLUMNS = 200;

/** From which shift on a cell has which step: points of shares, percent of all else. */
const STEPS = [1, 3, 8] as const;

const DAY_FORMAT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const YEAR_FORMAT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "2-digit" });
const TIME_FORMAT = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

interface Run {
  readonly experiment: string;
  readonly time: number;
  readonly rows: Set<number>;
}

/** Columns of all runs, oldest first. Runs of one day share a column where no row has two of them. */
export function columnsOf(rows: readonly HeatRow[]): Column[] {
  const made: { runs: Run[]; rows: Set<number> }[] = [];
  for (const run of runsOf(rows)) {
    const last = made.at(-1);
    if (last && dayOf(last.runs[0]) === dayOf(run) && ![...run.rows].some((row) => last.rows.has(row))) {
      last.runs.push(run);
      run.rows.forEach((row) => last.rows.add(row));
    } else made.push({ runs: [run], rows: new Set(run.rows) });
  }
  const days = made.map((one) => dayOf(one.runs[0]));
  const years = new Set(days.map((day) => day.slice(-4))).size > 1;
  return made.map(({ runs }, at) => {
    const begin = runs[0]?.time ?? 0;
    const end = runs.at(-1)?.time ?? begin;
    const several = days[at] === days[at - 1] || days[at] === days[at + 1];
    return { begin, end, runs: new Set(runs.map((run) => run.experiment)), day: (years ? YEAR_FORMAT : DAY_FORMAT).format(begin * 1000), clock: several ? clockOf(begin, end) : "" };
  });
}

function runsOf(rows: readonly HeatRow[]): Run[] {
  const found = new Map<string, Run>();
  rows.forEach((row, at) => {
    for (const { experiment, time } of row.points) {
      const run = found.get(experiment) ?? { experiment, time, rows: new Set() };
      run.rows.add(at);
      found.set(experiment, run);
    }
  });
  return [...found.values()].sort((a, b) => a.time - b.time || (a.experiment < b.experiment ? -1 : 1));
}

/** A day of local time, as all times of the pages. */
function dayOf(run: Run | undefined): string {
  return new Date(1000 * (run?.time ?? 0)).toDateString();
}

function clockOf(begin: number, end: number): string {
  const [from, to] = [TIME_FORMAT.format(begin * 1000), TIME_FORMAT.format(end * 1000)];
  return from === to ? from : `${from}–${to}`;
}

/** A row's cells, one a column; null where it has no run. */
export function cellsOf<P extends HeatPoint, C extends HeatChange>(
  row: Omit<HeatRow, "points" | "changes"> & { readonly points: readonly P[]; readonly changes: readonly C[] },
  columns: readonly Column[],
): (Cell<P, C> | null)[] {
  const first = firstOf(row);
  const changes = new Map(row.changes.map((change) => [change.first, change]));
  return columns.map((column) => {
    const point = row.points.find((one) => column.runs.has(one.experiment));
    if (!point) return null;
    const shift = shiftOf(row, first, point.value);
    return { point, shift, step: stepOf(shift), change: changes.get(point.experiment) ?? null };
  });
}

/** Value of a row's first run: zero of its scale. */
export function firstOf(row: HeatRow): number {
  return row.points[0]?.value ?? 0;
}

/** Whether a row's shifts are points of a share; else percent. */
export function inPoints(row: HeatRow): boolean {
  return row.kind === "quality" || row.kind === "coverage"
    ? row.points.every((point) => point.value >= 0 && point.value <= 1)
    : false;
}

/** Points or percent from a value to another, above zero where that is better; infinite percent of nothing. */
export function shiftOf(row: HeatRow, from: number, value: number): number {
  const towards = row.higher_is_better ? 1 : -1;
  if (inPoints(row)) return 100 * (value - from) * towards || 0;
  if (value === from) return 0;
  return ((100 * (value - from)) / Math.abs(from)) * towards || 0;
}

/** The step of the scale for a shift, from -3 to 3. */
export function stepOf(shift: number): number {
  const size = STEPS.filter((least) => Math.abs(shift) >= least).length;
  return shift < 0 ? -size || 0 : size;
}

/** A shift as a cell has it: `−4.2`, `+12`, `0`, `+∞`. */
export function shown(shift: number): string {
  const size = Math.abs(shift);
  if (size === Infinity) return shift < 0 ? "−∞" : "+∞";
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
