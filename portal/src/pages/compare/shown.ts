/** Which rows of a comparison are shown, and in which order. */

import type { MetricCompared } from "../../api/schema";

/** Metrics, each once, in their order. */
export function metricsOf(rows: readonly MetricCompared[]): readonly string[] {
  return [...new Set(rows.map((row) => row.metric))];
}

/** Rows of one pair of run tasks stand together, pairs in the order they came in. */
export function keepOrder(rows: readonly MetricCompared[]): readonly MetricCompared[] {
  const groups = new Map<string, MetricCompared[]>();
  for (const row of rows) {
    const key = JSON.stringify([row.baseline, row.candidate]);
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups.values()].flat();
}

/** Rows in which any sample came out otherwise. */
export function visible(rows: readonly MetricCompared[]): readonly MetricCompared[] {
  return rows.filter((row) => row.won + row.lost > 0);
}
