import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { queryOf, useApi } from "../../api";
import { apiQuery, type SampleFilter } from "./filter";
import { FRESH, SAMPLE, useAhead } from "./useAhead";

/** A sample whole, and its neighbours fetched ahead with their images: the next one shows at once. */
export function useSample(experiment: string, run_task: string, filter: SampleFilter, place: number | undefined) {
  const client = useQueryClient();
  const query = apiQuery(filter);
  const asked = (at: number) => ({ path: { experiment, run_task, place: at }, query });
  const known = place !== undefined && client.getQueryData(queryOf(SAMPLE, asked(place)).queryKey) !== undefined;
  const rested = useRested(place);
  const shown = known ? place : (rested ?? place);
  const found = useApi(SAMPLE, shown === undefined ? null : asked(shown), { keep: true, fresh: FRESH });
  const detail = found.data;
  const settled = detail !== undefined && !found.isPlaceholderData;
  useAhead(settled ? [detail.following, detail.previous].filter((at) => typeof at === "number").map(asked) : []);
  return { detail, fault: found.error, old: found.isPlaceholderData || shown !== place, again: () => void found.refetch() };
}

/** Milliseconds: while J is held down, only the sample where it stops is requested. */
const REST = 50;

/** The place, once it has stayed the same for a moment. */
function useRested(place: number | undefined): number | undefined {
  const [rested, setRested] = useState(place);
  useEffect(() => {
    const timer = setTimeout(() => setRested(place), REST);
    return () => clearTimeout(timer);
  }, [place]);
  return rested;
}
