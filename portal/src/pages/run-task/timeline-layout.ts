/** From phases of workers to bars in lanes. Pure; times are seconds since the epoch. */

export type What = "queued" | "starting" | "loading" | "inference" | "idle" | "evaluation" | "ended";

export interface Phase {
  readonly what: What;
  readonly worker: string;
  readonly node: string;
  readonly begin: number;
  readonly end: number | null;
}

export interface TimelineBar {
  readonly what: What;
  readonly begin: number;
  readonly end: number;
  /** It continues. */
  readonly open: boolean;
  /** Left edge and width as shares of the whole. */
  readonly left: number;
  readonly width: number;
}

export interface Lane {
  readonly worker: string;
  readonly node: string;
  readonly bars: readonly TimelineBar[];
}

export interface Tick {
  readonly at: number;
  readonly left: number;
}

export interface Total {
  readonly what: What;
  readonly seconds: number;
  /** Of all time in all lanes. */
  readonly share: number;
}

export interface Timeline {
  readonly begin: number;
  readonly end: number;
  readonly lanes: readonly Lane[];
  readonly ticks: readonly Tick[];
  readonly totals: readonly Total[];
}

export const ORDER: readonly What[] = [
  "queued", "starting", "loading", "inference", "idle", "evaluation", "ended",
];

export const WORDS: Record<What, string> = {
  queued: "Waited for Slurm",
  starting: "Started up",
  loading: "Loaded the model",
  inference: "Asked the model",
  idle: "Idle",
  evaluation: "Evaluated",
  ended: "Ended",
};

/** Steps between ticks, seconds: each divides the one an hour or a day above it. */
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
  172_800, 604_800,
];

/** Bars of one kind that stand closer than this share of the whole are drawn as one. */
const GAP = 1 / 1000;

/**
 * Lay phases out in a lane a worker, in order of their first moment.
 *
 * @param now where phases end that go on.
 * @param ticks most ticks wanted.
 */
export function laidOut(phases: readonly Phase[], now: number, ticks = 8): Timeline {
  const timed = phases.filter((one) => one.what !== "ended");
  const begin = Math.min(...timed.map((one) => one.begin), Infinity);
  const last = Math.max(...timed.map((one) => endOf(one, now)), -Infinity);
  if (begin > last) return { begin: now, end: now, lanes: [], ticks: [], totals: [] };
  const end = Math.max(last, begin + 1);
  const lanes = [...byWorker(timed)].map(([worker, own]) => lane(worker, own, begin, end, now));
  return {
    begin,
    end,
    lanes: lanes.sort((a, b) => (a.bars[0]?.begin ?? 0) - (b.bars[0]?.begin ?? 0)),
    ticks: ticksOf(begin, end, ticks),
    totals: totals(timed, now),
  };
}

function endOf(phase: Phase, now: number): number {
  return Math.max(phase.end ?? now, phase.begin);
}

function byWorker(phases: readonly Phase[]): Map<string, Phase[]> {
  const lanes = new Map<string, Phase[]>();
  for (const one of phases) {
    const own = lanes.get(one.worker);
    if (own) own.push(one);
    else lanes.set(one.worker, [one]);
  }
  return lanes;
}

function lane(worker: string, own: readonly Phase[], begin: number, end: number, now: number): Lane {
  const bars: TimelineBar[] = [];
  const span = end - begin;
  for (const one of [...own].sort((a, b) => a.begin - b.begin)) {
    const upTo = endOf(one, now);
    const before = bars.at(-1);
    if (before?.what === one.what && one.begin - before.end <= GAP * span) {
      const far = Math.max(before.end, upTo);
      bars[bars.length - 1] = {
        ...before, end: far, open: before.open || one.end === null, width: (far - before.begin) / span,
      };
    } else
      bars.push({
        what: one.what, begin: one.begin, end: upTo, open: one.end === null,
        left: (one.begin - begin) / span, width: (upTo - one.begin) / span,
      });
  }
  return { worker, node: own.find((one) => one.node)?.node ?? "", bars };
}

function totals(phases: readonly Phase[], now: number): Total[] {
  const sums = new Map<What, number>();
  for (const one of phases)
    sums.set(one.what, (sums.get(one.what) ?? 0) + endOf(one, now) - one.begin);
  const all = [...sums.values()].reduce((sum, one) => sum + one, 0);
  return ORDER.filter((what) => sums.has(what)).map((what) => {
    const seconds = sums.get(what) ?? 0;
    return { what, seconds, share: all > 0 ? seconds / all : 0 };
  });
}

/** Ticks at round moments of the local clock, at most so many. */
export function ticksOf(begin: number, end: number, most: number): Tick[] {
  const span = end - begin;
  const step = STEPS.find((one) => span / one <= most) ?? Math.ceil(span / most / 604_800) * 604_800;
  const zone = new Date(begin * 1000).getTimezoneOffset() * 60;
  const ticks: Tick[] = [];
  for (let at = Math.ceil((begin - zone) / step) * step + zone; at <= end; at += step)
    ticks.push({ at, left: (at - begin) / span });
  return ticks;
}
