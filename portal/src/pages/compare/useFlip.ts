import { useApi } from "../../api";
import type { FlipRow } from "../../api/schema";
import { type Asked, FRESH, SAMPLE, useAhead } from "../samples/useAhead";

/** A run task of one side of a comparison. */
export interface Side {
  readonly experiment: string;
  readonly task: string;
}

function asked({ experiment, task }: Side, place: number): Asked {
  return { path: { experiment, run_task: task, place } };
}

/** A sample whole in both runs; its neighbours are fetched ahead. */
export function useFlip(sides: readonly [Side, Side], row: FlipRow, neighbours: readonly (FlipRow | undefined)[]) {
  const one = useApi(SAMPLE, asked(sides[0], row.places[0]), { fresh: FRESH });
  const other = useApi(SAMPLE, asked(sides[1], row.places[1]), { fresh: FRESH });
  const settled = one.data !== undefined && other.data !== undefined;
  useAhead(settled ? neighbours.flatMap((next) => (next ? sides.map((side, at) => asked(side, next.places[at] ?? 0)) : [])) : []);
  const again = () => {
    void one.refetch();
    void other.refetch();
  };
  return { details: [one.data, other.data] as const, fault: one.error ?? other.error, again };
}
