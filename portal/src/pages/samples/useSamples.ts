import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";

import { type FaultError, queryOf, useApi } from "../../api";
import { isBundle } from "../../api/bundle";
import type { SamplePage, SampleRow } from "../../api/schema";
import { CHUNK, chunksOf, rowOf } from "./chunks";
import { apiQuery, type SampleFilter } from "./filter";
import { useWindow, type Window } from "./useWindow";

const PATH = "/experiments/{experiment}/run-tasks/{run_task}/samples";

/** Milliseconds that rows are believed; news of the experiment ends that at once. */
const FRESH = 60_000;

export interface Samples {
  /** The first chunk whole: what holds for all; undefined: not here yet. */
  readonly first: SamplePage | undefined;
  /** Whether what is shown answers the filter before. */
  readonly old: boolean;
  readonly fault: FaultError | null;
  readonly chunks: ReadonlyMap<number, readonly SampleRow[]>;
  readonly window: Window;
  readonly at: (number: number) => SampleRow | undefined;
  readonly again: () => void;
}

/** A bundle's pages have numbers, from 1. */
function numbered(chunk: number): { after?: string } {
  return chunk === 0 ? {} : { after: String(chunk + 1) };
}

/** A run task's samples that pass a filter: rows around what is in view, wherever in the list that is. */
export function useSamples(experiment: string, run_task: string, filter: SampleFilter, rowHeight: number): Samples {
  const asked = (chunk: number) => ({
    path: { experiment, run_task },
    query: { ...apiQuery(filter), limit: CHUNK, ...(isBundle() ? numbered(chunk) : { skip: chunk * CHUNK }) },
  });
  const head = useApi(PATH, asked(0), { keep: true, fresh: FRESH });
  const window = useWindow(head.data?.total ?? 0, rowHeight);
  const [begin, end] = window.settled;
  const wanted = useMemo(() => chunksOf(begin, end), [begin, end]);
  const found = useQueries({
    queries: wanted.map((chunk) => ({ ...queryOf(PATH, asked(chunk)), staleTime: FRESH, gcTime: FRESH })),
  });
  const chunks = new Map<number, readonly SampleRow[]>();
  if (head.data) chunks.set(0, head.data.items);
  wanted.forEach((chunk, at) => {
    const items = found[at]?.data?.items;
    if (items) chunks.set(chunk, items);
  });
  return {
    first: head.data,
    old: head.isPlaceholderData,
    fault: head.error,
    chunks,
    window,
    at: (number) => rowOf(chunks, number),
    again: () => void head.refetch(),
  };
}
