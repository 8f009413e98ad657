import { describe, expect, it } from "vitest";
import { STEPS, shades } from "./shades";

const scored = (value: number | null) => ({ score: { value } });

describe("shades of a column", () => {
  it("go from the worst to the best of the column", () => {
    expect(shades([scored(0.2), scored(0.6), scored(0.4)], true)).toEqual([0, STEPS, STEPS / 2]);
  });

  it("turn round where less is better", () => {
    expect(shades([scored(0.2), scored(0.6)], false)).toEqual([STEPS, 0]);
  });

  it("are in the middle where nothing can be told apart", () => {
    expect(shades([scored(0.5), scored(0.5)], true)).toEqual([STEPS / 2, STEPS / 2]);
  });

  it("are none where there is nothing to hold a score against", () => {
    expect(shades([scored(0.5)], true)).toEqual([null]);
  });

  it("leave out what has no score", () => {
    expect(shades([null, scored(null), {}, scored(0.5), scored(0.9)], true)).toEqual([null, null, null, 0, STEPS]);
  });
});
