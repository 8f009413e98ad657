import { describe, expect, it } from "vitest";

import type { MetricCompared } from "../../api/schema";
import { keepOrder, metricsOf, visible } from "./shown";

function row(baseline: string, metric: string, lost = 0): MetricCompared {
  return {
    baseline, candidate: baseline, metric, signature: metric, higher_is_better: true, unit: "", values: [1, 1],
    difference: 0, low: 0, high: 0, p: 1, verdict: "inconclusive", n: 9, documents: 9, won: 0, lost, tied: 9 - lost,
    both_right: 9 - lost, both_partly: 0, both_wrong: 0, only: [0, 0], detectable: null, if_worst: null, differs: [],
  }; // prettier-ignore
}

describe("rows of a comparison", () => {
  const rows = [row("a", "anls", 1), row("b", "anls"), row("a", "exact"), row("b", "exact", 2)];

  it("stand together by run task", () => {
    expect(keepOrder(rows).map((one) => one.baseline + one.metric)).toEqual(["aanls", "aexact", "banls", "bexact"]);
  });

  it("are those with differences, unless all are asked for", () => {
    expect(visible(rows)).toEqual([rows[0], rows[3]]);
  });

  it("have metrics to choose from", () => {
    expect(metricsOf(rows)).toEqual(["anls", "exact"]);
  });
});
