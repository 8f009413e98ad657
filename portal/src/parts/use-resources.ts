import { useQuery, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { ask, type FaultError } from "../api";
import { keyOf } from "../api/hooks";
import type { Resources } from "../api/schema";
import { longest, merged, MOST_POINTS } from "./merge-resources";

/** Milliseconds between looks while it runs, and while the server still reads. */
const EVERY = 5000;
const SOON = 1000;

/** Readings of an experiment's workers, of one run task or all; only what is new is fetched. */
export function useResources(experiment: string, runTask: string | null, runs: boolean): UseQueryResult<Resources, FaultError> {
  const client = useQueryClient();
  const path = { experiment };
  const query = runTask === null ? {} : { run_task: runTask };
  const queryKey = keyOf("/experiments/{experiment}/resources", { path, query });
  return useQuery<Resources, FaultError>({
    queryKey,
    queryFn: async ({ signal }) => {
      const before = client.getQueryData<Resources>(queryKey);
      const goesOn = before !== undefined && !before.partial && before.strips.length > 0 && longest(before) < MOST_POINTS;
      const since = goesOn ? { since: before.until } : {};
      const answer = await ask("/experiments/{experiment}/resources", { path, query: { ...query, ...since } }, signal);
      return goesOn ? merged(before, answer) : answer;
    },
    refetchInterval: ({ state }) => (state.data?.partial ? SOON : runs ? EVERY : false),
  });
}
