import { describe, expect, it } from "vitest";
import { longest, merged } from "./merge-resources";

const strip = (worker: string, times: readonly number[], what = "cpu") => ({ worker, what, device: "", times, values: times.map((one) => one * 10) });

describe("readings that grow", () => {
  it("puts newer points behind the older ones of the same worker, figure and device", () => {
    const found = merged({ strips: [strip("a", [1, 2]), strip("b", [1])], marks: [], until: 2 }, { strips: [strip("a", [3])], marks: [], until: 3 });
    expect(found.strips).toEqual([strip("a", [1, 2, 3]), strip("b", [1])]);
    expect(found.until).toBe(3);
  });

  it("leaves out what it has", () => {
    const before = { strips: [strip("a", [1, 2])], marks: [[1, "loaded"] as const], until: 2 };
    const found = merged(before, { strips: [strip("a", [2])], marks: [[1, "loaded"] as const], until: 2 });
    expect(found.strips[0]).toBe(before.strips[0]);
    expect(found.marks).toHaveLength(1);
  });

  it("takes workers that came meanwhile", () => {
    const found = merged({ strips: [strip("a", [1])], marks: [], until: 1 }, { strips: [strip("b", [2])], marks: [], until: 2 });
    expect(found.strips.map((one) => one.worker)).toEqual(["a", "b"]);
  });

  it("knows when there are too many points", () => {
    expect(longest({ strips: [strip("a", [1, 2, 3]), strip("b", [1])] })).toBe(3);
    expect(longest({ strips: [] })).toBe(0);
  });
});
