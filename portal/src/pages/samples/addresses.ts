/** Addresses of what belongs to a sample. */

import { apiUrl, url } from "../../api";
import type { SampleImage } from "../../api/schema";

/** An image of a sample, small or as it is. */
export function imageUrl(image: SampleImage, size: "thumb" | "full"): string {
  // Before it is an address: in a bundle the size is part of a file's name.
  return apiUrl(`${image.url}${image.url.includes("?") ? "&" : "?"}size=${size}`);
}

/** The first image of a sample, small. */
export function thumbUrl(experiment: string, run_task: string, place: number): string {
  return url("/experiments/{experiment}/run-tasks/{run_task}/samples/{place}/images/{number}", {
    path: { experiment, run_task, place, number: 0 },
    query: { size: "thumb" },
  });
}
