import { describe, expect, it } from "vitest";

import { refusalOf, settingOf, speedOf, speedVerdict } from "./told";

const raw = {
  baseline_task: "a", candidate_task: "b", label: "TTFT p50", unit: "ms", baseline: 215, candidate: 129,
  ratio: 0.6, interval: [0.57, 0.63], higher_is_better: false, comparable: true, why_not: "",
}; // prettier-ignore

describe("a figure of speed", () => {
  it("is better where the whole interval of its ratio is", () => {
    expect(speedOf(raw)).toMatchObject({ task: "a → b", ratio: 0.6, interval: [0.57, 0.63] });
    expect(speedVerdict(speedOf(raw))).toBe("better");
    expect(speedVerdict(speedOf({ ...raw, higher_is_better: true }))).toBe("worse");
    expect(speedVerdict(speedOf({ ...raw, interval: [0.9, 1.1] }))).toBe("inconclusive");
  });

  it("has no verdict where machines differ, or without an interval", () => {
    expect(speedVerdict(speedOf({ ...raw, comparable: false }))).toBe("none");
    expect(speedVerdict(speedOf({ ...raw, interval: null }))).toBe("none");
  });

  it("is read whatever it is made of", () => {
    expect(speedOf({})).toMatchObject({ task: "", baseline: null, interval: null, comparable: false });
  });
});

it("refusals and settings are told as texts", () => {
  expect(refusalOf({ baseline: "a", candidate: "a", metric: null, why: "other samples" })).toEqual({
    tasks: "a",
    metric: "all metrics",
    why: "other samples",
    remedy: "",
  });
  expect(settingOf({ path: "p", one: ["<b>"], other: null })).toEqual({ path: "p", one: '["<b>"]', other: "–" });
});
