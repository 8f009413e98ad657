/** What the comparison tells in loose objects, read with care: figures of speed, refusals, settings. */

type Loose = Readonly<Record<string, unknown>>;

export interface SpeedRow {
  readonly task: string;
  readonly label: string;
  readonly unit: string;
  readonly baseline: number | null;
  readonly candidate: number | null;
  readonly ratio: number | null;
  readonly interval: readonly [number, number] | null;
  readonly higherIsBetter: boolean;
  readonly comparable: boolean;
  readonly whyNot: string;
}

export interface Refusal {
  readonly tasks: string;
  readonly metric: string;
  readonly why: string;
  readonly remedy: string;
}

export interface Setting {
  readonly path: string;
  readonly one: string;
  readonly other: string;
}

/** A figure of speed or memory. */
export function speedOf(raw: Loose): SpeedRow {
  const interval = raw["interval"];
  const [low, high] = Array.isArray(interval) ? (interval as unknown[]) : [];
  return {
    task: pair(raw["baseline_task"], raw["candidate_task"]),
    label: text(raw["label"]),
    unit: text(raw["unit"]),
    baseline: amount(raw["baseline"]),
    candidate: amount(raw["candidate"]),
    ratio: amount(raw["ratio"]),
    interval: typeof low === "number" && typeof high === "number" ? [low, high] : null,
    higherIsBetter: raw["higher_is_better"] === true,
    comparable: raw["comparable"] === true,
    whyNot: text(raw["why_not"]),
  };
}

/** What was not compared, and why. */
export function refusalOf(raw: Loose): Refusal {
  return {
    tasks: pair(raw["baseline"], raw["candidate"]),
    metric: text(raw["metric"]) || "all metrics",
    why: text(raw["why"]),
    remedy: text(raw["remedy"]),
  };
}

/** What is configured differently. */
export function settingOf(raw: Loose): Setting {
  return { path: text(raw["path"]), one: told(raw["one"]), other: told(raw["other"]) };
}

/** What may be said of a ratio: nothing without an interval, or where machines and load were not of one kind. */
export function speedVerdict(row: SpeedRow): "better" | "worse" | "inconclusive" | "none" {
  if (!row.comparable || row.interval === null) return "none";
  const [low, high] = row.interval;
  if (low <= 1 && high >= 1) return "inconclusive";
  return low > 1 === row.higherIsBetter ? "better" : "worse";
}

function pair(one: unknown, other: unknown): string {
  return [...new Set([text(one), text(other)])].filter(Boolean).join(" → ");
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function amount(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function told(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
