import type { Resources, Strip } from "../../api/schema";

/** Strips of one figure: a line for each device of each worker. */
export interface Group {
  readonly what: Strip["what"];
  readonly title: string;
  readonly unit: string;
  /** Greatest of what there is; null: unknown. */
  readonly limit: number | null;
  readonly names: readonly string[];
  /** Times, then the values of each line, as uPlot takes them. */
  readonly data: readonly [readonly number[], ...(readonly (number | null)[])[]];
}

const TITLES: Readonly<Record<Strip["what"], string>> = {
  rate: "Answers a second",
  gpu_use: "GPU use",
  gpu_memory: "GPU memory",
  gpu_power: "GPU power",
  gpu_temperature: "GPU temperature",
  host_memory: "Memory",
  cpu: "CPU",
};

/** Strips by figure, those of one figure on the same times. */
export function groupsOf(resources: Resources): readonly Group[] {
  return (Object.keys(TITLES) as Strip["what"][]).flatMap((what) => {
    const strips = resources.strips.filter((strip) => strip.what === what && strip.times.length > 0);
    const unit = strips[0]?.unit;
    if (unit === undefined) return [];
    const limits = strips.map((strip) => strip.limit).filter((limit) => typeof limit === "number");
    return [{ what, title: TITLES[what], unit, limit: limits.length ? Math.max(...limits) : null, names: strips.map(nameOf), data: joined(strips) }];
  });
}

function nameOf({ worker, device }: Strip): string {
  return device ? `${worker} GPU ${device}` : worker || "all";
}

/** Values on the union of all times; a line has gaps where it was not measured and `null` where it failed. */
function joined(strips: readonly Strip[]): Group["data"] {
  const times = [...new Set(strips.flatMap((strip) => strip.times))].sort((a, b) => a - b);
  const place = new Map(times.map((time, at) => [time, at]));
  const lines = strips.map((strip) => {
    const line: (number | null | undefined)[] = Array.from({ length: times.length });
    strip.times.forEach((time, at) => {
      line[place.get(time) ?? 0] = strip.values[at] ?? null;
    });
    // uPlot bridges undefined, and breaks the line at null.
    return line as (number | null)[];
  });
  return [times, ...lines];
}
