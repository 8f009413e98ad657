import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

import { queryOf } from "../../api";
import type { SampleDetail } from "../../api/schema";
import { imageUrl } from "./addresses";
import { prefetchImage } from "./useImage";

/** One sample whole. */
export const SAMPLE = "/experiments/{experiment}/run-tasks/{run_task}/samples/{place}";

/** Milliseconds that a sample is believed; news of the experiment ends that at once. */
export const FRESH = 60_000;

export interface Asked {
  readonly path: { readonly experiment: string; readonly run_task: string; readonly place: number };
  /** The filter and the order of the list that it is in. */
  readonly query?: Record<string, unknown>;
}

/** Samples fetched ahead with their first images: they show at once when they are opened. */
export function useAhead(asked: readonly Asked[]): void {
  const client = useQueryClient();
  const written = JSON.stringify(asked);
  useEffect(() => {
    for (const params of JSON.parse(written) as Asked[]) {
      void client.query({ ...queryOf(SAMPLE, params), staleTime: FRESH }).then(prefetchImages, () => undefined);
    }
  }, [client, written]);
}

function prefetchImages(detail: SampleDetail): void {
  const [first] = detail.images;
  if (first) prefetchImage(imageUrl(first, "full"));
}
