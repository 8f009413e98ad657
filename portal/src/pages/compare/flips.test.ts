import { describe, expect, it } from "vitest";

import { described, segments } from "./flips";

const row = { won: 10, lost: 26, both_right: 60, both_partly: 4, both_wrong: 20 };

describe("the flip bar", () => {
  it("has a length for each change, what was lost first", () => {
    const bar = segments(row);
    expect(bar.map((one) => [one.change, one.count])).toEqual([
      ["lost", 26],
      ["won", 10],
      ["both_wrong", 20],
      ["both_partly", 4],
      ["both_right", 60],
    ]);
    expect(bar[0]?.width).toBeCloseTo((100 * 26) / 120);
  });

  it("shows one sample among a million", () => {
    const bar = segments({ lost: 1, won: 0, both_wrong: 0, both_partly: 0, both_right: 999_999 });
    expect(bar[0]?.width).toBeGreaterThanOrEqual(3);
    expect(bar.reduce((sum, one) => sum + one.width, 0)).toBeCloseTo(100);
  });

  it("has no segment for what there is none of", () => {
    expect(segments({ lost: 0, won: 0, both_wrong: 0, both_partly: 0, both_right: 5 })).toHaveLength(1);
    expect(segments({ lost: 0, won: 0, both_wrong: 0, both_partly: 0, both_right: 0 })).toEqual([]);
  });

  it("can be told in words", () => {
    expect(described({ ...row, both_partly: 0 })).toBe("26 lost, 10 won, 20 both wrong, 60 both right");
    expect(described({ lost: 0, won: 0, both_wrong: 0, both_partly: 0, both_right: 0 })).toBe("no pairs");
  });
});
