import { describe, expect, it } from "vitest";

import { buckets, cellsOf, type HeatRow, legend, levelOf, shiftOf, shown, stepOf } from "./heat";

const DAY = 86_400;
const START = 20_000 * DAY;

function row(values: readonly number[], more: Partial<HeatRow> = {}): HeatRow {
  const points = values.map((value, at) => ({ experiment: `e${at}`, time: START + at * DAY + 60, value }));
  return { name: "anls", kind: "quality", higher_is_better: true, points, changes: [], ...more };
}

describe("columns", () => {
  it("are days where runs are nightly, weeks where there are many", () => {
    const nightly = buckets([row([0.5, 0.6, 0.7])]);
    expect(nightly.map((one) => one.end - one.begin)).toEqual([DAY, DAY, DAY]);
    const many = buckets([row(Array.from({ length: 365 }, () => 0.5))]);
    expect(many.length).toBeLessThanOrEqual(60);
    expect(many[1]?.begin).toBe((many[0]?.begin ?? 0) + 7 * DAY);
  });

  it("leave out times when nothing ran", () => {
    const gap = row([0.5, 0.5]);
    const points = [...gap.points, { experiment: "late", time: START + 900 * DAY, value: 0.5 }];
    expect(buckets([{ ...gap, points }])).toHaveLength(3);
  });

  it("are none where there is nothing", () => {
    expect(buckets([])).toEqual([]);
  });
});

describe("a cell", () => {
  it("says how far it is from where the row began", () => {
    const change = { id: "c", before: 0.9, first: "e2", last_good: "e1", worse: true };
    const fell = row([0.9, 0.9, 0.8], { changes: [change] });
    const cells = cellsOf(fell, buckets([fell]));
    expect(cells.map((cell) => cell?.step)).toEqual([0, 0, -3]);
    expect(cells[2]?.shift).toBeCloseTo(-10);
    expect(cells[2]?.change?.id).toBe("c");
    expect(cells[1]?.change).toBeNull();
  });

  it("is better where less is better and it fell", () => {
    const quicker = row([200, 200, 100], { kind: "speed", higher_is_better: false });
    expect(shiftOf(quicker, 200, 100)).toBeCloseTo(50);
  });

  it("is empty where its row has no value", () => {
    const both = [row([0.5, 0.5]), { ...row([0.5]), points: [{ experiment: "x", time: START + 9 * DAY, value: 1 }] }];
    const columns = buckets(both);
    expect(cellsOf(both[1] ?? row([]), columns)).toEqual([null, null, expect.objectContaining({ count: 1 })]);
  });

  it("takes the newest of its stretch, and says how many there were", () => {
    const same = row([0.5, 0.7]);
    const points = same.points.map((point, at) => ({ ...point, time: START + at }));
    const cells = cellsOf({ ...same, points }, buckets([{ ...same, points }]));
    expect(cells).toHaveLength(1);
    expect(cells[0]).toMatchObject({ count: 2, point: { value: 0.7 } });
  });
});

describe("the scale", () => {
  it("has the middle value as beginning where no level changed", () => {
    expect(levelOf(row([0.1, 0.9, 0.5]))).toBe(0.5);
    expect(levelOf(row([0.4, 0.6]))).toBe(0.5);
    expect(levelOf(row([]))).toBe(0);
  });

  it("has the same steps on both sides", () => {
    expect([-9, -3, -1, -0.4, 0, 0.4, 1, 3, 9].map(stepOf)).toEqual([-3, -2, -1, 0, 0, 0, 1, 2, 3]);
    expect(legend().map((one) => one.step)).toEqual([-3, -2, -1, 0, 1, 2, 3]);
  });

  it("has its number and sign in each cell", () => {
    expect([-4.23, 12.3, 0.02, 9.96].map(shown)).toEqual(["−4.2", "+12", "0", "+10"]);
  });

  it("does not divide by nothing", () => {
    expect(shiftOf(row([0, 5], { kind: "speed" }), 0, 5)).toBe(0);
  });
});
