/** A trend as a line with its interval as a band: places in a drawing of a given size. No DOM here. */

export interface LinePoint {
  readonly time: number;
  readonly value: number;
  readonly low: number | null;
  readonly high: number | null;
}

export interface Frame {
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

export interface Line {
  /** `d` of the line's path. */
  readonly path: string;
  /** `d` of the band's path; empty where no point has an interval. */
  readonly band: string;
  /** Where each point is. */
  readonly places: readonly { readonly x: number; readonly y: number }[];
  /** Values of horizontal lines, and their places. */
  readonly ticks: readonly { readonly value: number; readonly y: number }[];
}

/** Places for points in order of time, evenly apart: runs are not, and nights without one would be most of it. */
export function drawn(points: readonly LinePoint[], frame: Frame): Line {
  const [low, high] = range(points);
  const y = (value: number) =>
    frame.top + (1 - (value - low) / (high - low)) * (frame.height - frame.top - frame.bottom);
  const room = frame.width - frame.left - frame.right;
  const x = (at: number) => frame.left + (points.length > 1 ? (at / (points.length - 1)) * room : room / 2);
  const places = points.map((point, at) => ({ x: x(at), y: y(point.value) }));
  return {
    path: path(places),
    band: stretches(points)
      .map(([begin, end]) => {
        const within = points.slice(begin, end);
        const upper = within.map((point, at) => ({ x: x(begin + at), y: y(point.high ?? point.value) }));
        const lower = within.map((point, at) => ({ x: x(begin + at), y: y(point.low ?? point.value) }));
        return `${path([...upper, ...lower.reverse()])}Z`;
      })
      .join(""),
    places,
    ticks: ticksOf(low, high).map((value) => ({ value, y: y(value) })),
  };
}

/** Round values within a range, three to six of them. */
export function ticksOf(low: number, high: number): number[] {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10) * power;
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

/** From the least to the greatest of all ends, with some room; never empty. */
function range(points: readonly LinePoint[]): [number, number] {
  const all = points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
  const low = Math.min(...all, Infinity);
  const high = Math.max(...all, -Infinity);
  if (!Number.isFinite(low)) return [0, 1];
  const room = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** Neighbours that all have an interval, end excluded. */
function stretches(points: readonly LinePoint[]): [number, number][] {
  const found: [number, number][] = [];
  points.forEach((point, at) => {
    if (point.low === null || point.high === null) return;
    const last = found.at(-1);
    if (last?.[1] === at) last[1] = at + 1;
    else found.push([at, at + 1]);
  });
  return found;
}

function path(places: readonly { x: number; y: number }[]): string {
  return places.map(({ x, y }, at) => `${at === 0 ? "M" : "L"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
}
