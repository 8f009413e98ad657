import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

import { queryOf, useApi } from "../../api";
import type { FlipRow } from "../../api/schema";

/** A run task of one side of a comparison. */
export interface Side {
  readonly experiment: string;
  readonly task: string;
}

const PATH = "/experiments/{experiment}/run-tasks/{run_task}/samples/{place}";

/** Milliseconds that a sample is believed. */
const FRESH = 60_000;

function asked({ experiment, task }: Side, place: number) {
  return { path: { experiment, run_task: task, place } };
}

/** A sample whole in both runs; its neighbours are fetched ahead. */
export function useFlip(sides: readonly [Side, Side], row: FlipRow, neighbours: readonly (FlipRow | undefined)[]) {
  const client = useQueryClient();
  const one = useApi(PATH, asked(sides[0], row.places[0]), { fresh: FRESH });
  const other = useApi(PATH, asked(sides[1], row.places[1]), { fresh: FRESH });
  const settled = one.data !== undefined && other.data !== undefined;
  const ahead = JSON.stringify(settled ? neighbours.flatMap((next) => (next ? sides.map((side, at) => asked(side, next.places[at] ?? 0)) : [])) : []);
  useEffect(() => {
    for (const params of JSON.parse(ahead) as ReturnType<typeof asked>[]) {
      void client.query({ ...queryOf(PATH, params), staleTime: FRESH }).catch(() => undefined);
    }
  }, [client, ahead]);
  const again = () => {
    void one.refetch();
    void other.refetch();
  };
  return { details: [one.data, other.data] as const, fault: one.error ?? other.error, again };
}
