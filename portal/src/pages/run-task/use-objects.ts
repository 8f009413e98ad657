import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { ask, FaultError } from "../../api";
import type { DatasetObject } from "../../api/schema";
import { keyOf } from "../../api/hooks";

/** Objects of a page: as many as the server gives. */
const LIMIT = 2000;

/** Objects that are fetched at most. */
const MOST = 20_000;

export interface Objects {
  readonly objects: readonly DatasetObject[];
  readonly total: number;
  readonly loading: boolean;
  readonly fault: FaultError | null;
  readonly again: () => void;
}

/** All objects of a run task's dataset, page after page. */
export function useObjects(experiment: string, task: string): Objects {
  const path = { experiment, run_task: task };
  const found = useInfiniteQuery({
    queryKey: keyOf("/experiments/{experiment}/objects/{run_task}", { path }),
    queryFn: ({ pageParam, signal }) => ask("/experiments/{experiment}/objects/{run_task}", { path, query: { limit: LIMIT, ...(pageParam === null ? {} : { after: pageParam }) } }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? null,
  });
  const { data, hasNextPage, isFetching, fetchNextPage } = found;
  const objects = useMemo(() => data?.pages.flatMap((page) => page.items) ?? [], [data]);
  useEffect(() => {
    if (hasNextPage && !isFetching && objects.length < MOST) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage, objects.length]);
  const error: unknown = found.error;
  return {
    objects,
    total: Math.max(objects.length, data?.pages[0]?.total ?? 0),
    loading: found.isPending,
    fault: error instanceof FaultError ? error : null,
    again: () => void found.refetch(),
  };
}
