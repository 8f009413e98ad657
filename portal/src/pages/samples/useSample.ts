import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { queryOf, useApi } from "../../api";
import type { SampleDetail } from "../../api/schema";
import { imageUrl } from "./addresses";
import { apiQuery, type SampleFilter } from "./filter";
import { prefetchImage } from "./useImage";

const PATH = "/experiments/{experiment}/run-tasks/{run_task}/samples/{place}";

/** Milliseconds that a sample is believed; news of the experiment ends that at once. */
const FRESH = 60_000;

/** A sample whole, and its neighbours fetched ahead with their images: the next one shows at once. */
export function useSample(experiment: string, run_task: string, filter: SampleFilter, place: number | undefined) {
  const client = useQueryClient();
  const query = apiQuery(filter);
  const asked = (at: number) => ({ path: { experiment, run_task, place: at }, query });
  const known = place !== undefined && client.getQueryData(queryOf(PATH, asked(place)).queryKey) !== undefined;
  const rested = useRested(place);
  const shown = known ? place : (rested ?? place);
  const found = useApi(PATH, shown === undefined ? null : asked(shown), { keep: true, fresh: FRESH });
  const detail = found.data;
  const settled = detail !== undefined && !found.isPlaceholderData;
  const following = settled ? detail.following : null;
  const previous = settled ? detail.previous : null;
  const written = JSON.stringify([experiment, run_task, query, following, previous]);
  useEffect(() => {
    const [id, task, asks, ...places] = JSON.parse(written) as [string, string, typeof query, number | null, number | null];
    for (const at of places) {
      if (at === null) continue;
      const next = queryOf(PATH, { path: { experiment: id, run_task: task, place: at }, query: asks });
      void client.query({ ...next, staleTime: FRESH }).then(prefetchImages, () => undefined);
    }
  }, [client, written]);
  return { detail, fault: found.error, old: found.isPlaceholderData || shown !== place, again: () => void found.refetch() };
}

/** Milliseconds: whoever holds J down asks only for the sample where he stops. */
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

function prefetchImages(detail: SampleDetail): void {
  const [first] = detail.images;
  if (first) prefetchImage(imageUrl(first, "full"));
}
