import { describe, expect, it } from "vitest";
import { laidOut, ticksOf, type Phase, type What } from "./timeline-layout";

const phase = (what: What, begin: number, end: number | null, worker = "g0.1"): Phase => ({
  what, begin, end, worker, node: worker === "g0.1" ? "gpu01" : "",
});

describe("a run task's timeline", () => {
  it("has a lane for each worker, the first one on top, and bars as shares of the whole", () => {
    const drawn = laidOut(
      [phase("inference", 60, 100, "g0.2"), phase("queued", 0, 50), phase("loading", 50, 100)], 500,
    );
    expect(drawn.lanes.map((one) => one.worker)).toEqual(["g0.1", "g0.2"]);
    expect(drawn.lanes[0]?.bars.map((one) => [one.left, one.width])).toEqual([[0, 0.5], [0.5, 0.5]]);
    expect(drawn.lanes[0]?.node).toBe("gpu01");
  });

  it("draws what goes on up to now", () => {
    const bar = laidOut([phase("inference", 0, null)], 40).lanes[0]?.bars[0];
    expect(bar).toMatchObject({ end: 40, open: true, width: 1 });
  });

  it("draws attempts that follow at once as one bar, and others apart", () => {
    const close = laidOut([phase("inference", 0, 5000), phase("inference", 5001, 9000)], 9000);
    expect(close.lanes[0]?.bars).toHaveLength(1);
    expect(close.lanes[0]?.bars[0]).toMatchObject({ begin: 0, end: 9000, width: 1 });
    const apart = laidOut([phase("inference", 0, 50), phase("inference", 70, 100)], 100);
    expect(apart.lanes[0]?.bars).toHaveLength(2);
  });

  it("adds up what took how long, in the order of the work", () => {
    const { totals } = laidOut(
      [phase("inference", 30, 90), phase("queued", 0, 30), phase("inference", 0, 10, "g0.2")], 90,
    );
    expect(totals).toEqual([
      { what: "queued", seconds: 30, share: 0.3 },
      { what: "inference", seconds: 70, share: 0.7 },
    ]);
  });

  it("survives clocks of two nodes that disagree", () => {
    expect(laidOut([phase("loading", 50, 40)], 60).lanes[0]?.bars[0]?.width).toBe(0);
  });

  it("is empty where nothing happened", () => {
    expect(laidOut([], 10).lanes).toEqual([]);
  });

  it("has round ticks, few of them, for seconds as for weeks", () => {
    for (const span of [3, 59, 600, 4000, 90_000, 3_000_000]) {
      const ticks = ticksOf(1_000_003, 1_000_003 + span, 8);
      expect(ticks.length).toBeGreaterThan(1);
      expect(ticks.length).toBeLessThanOrEqual(9);
      expect(ticks.every((one) => one.left >= 0 && one.left <= 1)).toBe(true);
    }
  });
});
