/** From dataset objects to cells of a grid that stays quick with 10,000 of them: a path a state. Pure. */

export interface Shard {
  readonly index: number;
  readonly state: string;
  readonly samples: number;
  readonly answered: number;
}

export interface GridShape {
  /** Edge of a cell with its gap, pixels. */
  readonly pitch: number;
  /** Edge of what is drawn of it, pixels. */
  readonly size: number;
  readonly columns: number;
  readonly rows: number;
}

export const STATES = [
  "pending", "acknowledged", "claimed", "running", "silent", "done", "failed", "lost",
] as const;

export type ShardState = (typeof STATES)[number];

export const STATE_WORDS: Record<ShardState, string> = {
  pending: "not started",
  acknowledged: "partly done, waits",
  claimed: "claimed, no answer yet",
  running: "answers come in",
  silent: "worker silent",
  done: "done",
  failed: "given up",
  lost: "worker gone",
};

/** The shape of a grid for so many cells in so wide a place. */
export function shapeOf(count: number, width: number): GridShape {
  const pitch = count <= 120 ? 26 : count <= 600 ? 20 : count <= 2500 ? 14 : 10;
  const columns = Math.max(1, Math.floor(width / pitch));
  return {
    pitch,
    size: pitch - (pitch > 12 ? 4 : 2),
    columns,
    rows: Math.ceil(count / columns),
  };
}

/** The cell under a point, or null. */
export function cellAt(shape: GridShape, count: number, x: number, y: number): number | null {
  const column = Math.floor(x / shape.pitch);
  const row = Math.floor(y / shape.pitch);
  if (column < 0 || column >= shape.columns || row < 0) return null;
  const place = row * shape.columns + column;
  return place < count ? place : null;
}

/** Left upper corner of a cell. */
export function cornerOf(shape: GridShape, place: number): { x: number; y: number } {
  return {
    x: (place % shape.columns) * shape.pitch,
    y: Math.floor(place / shape.columns) * shape.pitch,
  };
}

/** Where a key leads from a cell; null: no key of the grid. */
export function moved(shape: GridShape, count: number, place: number, key: string): number | null {
  const target = {
    ArrowRight: place + 1,
    ArrowLeft: place - 1,
    ArrowDown: place + shape.columns,
    ArrowUp: place - shape.columns,
    PageDown: place + 10 * shape.columns,
    PageUp: place - 10 * shape.columns,
    Home: 0,
    End: count - 1,
  }[key];
  if (target === undefined) return null;
  return Math.min(Math.max(target, 0), count - 1);
}

export interface Paths {
  /** Outline of every cell of a state. */
  readonly outline: string;
  /** What is filled of it: the answered share, from below. */
  readonly fill: string;
  /** A sign on it: a cross, a dot, a bar. */
  readonly sign: string;
}

export function known(state: string): ShardState {
  return (STATES as readonly string[]).includes(state) ? (state as ShardState) : "pending";
}

/** Paths of all cells, a triple for each state that occurs. Shapes differ, so that colour is not needed. */
export function pathsOf(shards: readonly Shard[], shape: GridShape): Map<ShardState, Paths> {
  const drawn = new Map<ShardState, { outline: string[]; fill: string[]; sign: string[] }>();
  shards.forEach((shard, place) => {
    const state = known(shard.state);
    let own = drawn.get(state);
    if (!own) drawn.set(state, (own = { outline: [], fill: [], sign: [] }));
    const { x, y } = cornerOf(shape, place);
    const s = shape.size;
    own.outline.push(`M${x + 0.5} ${y + 0.5}h${s - 1}v${s - 1}h${1 - s}z`);
    const share = state === "done" ? 1 : shard.samples > 0 ? shard.answered / shard.samples : 0;
    // A share of less than a pixel shows as one, and one that is not whole leaves one free.
    const high = share <= 0 ? 0 : share >= 1 ? s : Math.min(s - 1, Math.max(1, Math.round(share * s)));
    if (high > 0) own.fill.push(`M${x} ${y + s - high}h${s}v${high}h${-s}z`);
    const sign = signOf(state, x, y, s);
    if (sign) own.sign.push(sign);
  });
  return new Map(
    [...drawn].map(([state, { outline, fill, sign }]) => [
      state, { outline: outline.join(""), fill: fill.join(""), sign: sign.join("") },
    ]),
  );
}

function signOf(state: ShardState, x: number, y: number, s: number): string {
  const edge = Math.max(2, Math.round(s / 4));
  const inner = s - 2 * edge;
  const middle = s / 2;
  switch (state) {
    case "failed":
      return `M${x + edge} ${y + edge}l${inner} ${inner}M${x + s - edge} ${y + edge}l${-inner} ${inner}`;
    case "lost":
      return `M${x + edge} ${y + middle}h${inner}`;
    case "silent":
      return `M${x + middle} ${y + edge}v${inner}`;
    case "claimed":
      return `M${x + middle - 0.5} ${y + middle}h1`;
    default:
      return "";
  }
}

/** How many there are in each state that occurs, in the order of a shard's life. */
export function counted(shards: readonly Shard[]): { state: ShardState; count: number }[] {
  const counts = new Map<ShardState, number>();
  for (const shard of shards) counts.set(known(shard.state), (counts.get(known(shard.state)) ?? 0) + 1);
  return STATES.filter((state) => counts.has(state)).map((state) => ({
    state, count: counts.get(state) ?? 0,
  }));
}
