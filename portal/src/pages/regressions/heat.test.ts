import { describe, expect, it } from "vitest";

import { cellsOf, columnsOf, firstOf, type HeatRow, legend, shiftOf, shown, stepOf } from "./heat";

const DAY = 86_400;
/** Midnight of the local time, whatever that is. */
const START = new Date(2024, 9, 4).getTime() / 1000;

function row(values: readonly number[], more: Partial<HeatRow> = {}): HeatRow {
  const points = values.map((value, at) => ({ experiment: `e${at}`, time: START + at * DAY + 60, value }));
  return { name: "anls", kind: "quality", higher_is_better: true, points, changes: [], ...more };
}

describe("columns", () => {
  it("are one for each run", () => {
    const nightly = columnsOf([row([0.5, 0.6, 0.7])]);
    expect(nightly.map((one) => [...one.runs])).toEqual([["e0"], ["e1"], ["e2"]]);
    expect(columnsOf([row(Array.from({ length: 365 }, () => 0.5))])).toHaveLength(365);
  });

  it("are one for each run of one day too, told apart by the time", () => {
    const one = row([1.0, 0.6, 0.33, 0.96]);
    const points = one.points.map((point, at) => ({ ...point, time: START + 9 * 3600 + at * 600 }));
    const columns = columnsOf([{ ...one, points }]);
    expect(columns.map(({ day, clock }) => `${day} ${clock}`.trim())).toEqual(["4 Oct 09:00", "4 Oct 09:10", "4 Oct 09:20", "4 Oct 09:30"]);
    expect(cellsOf({ ...one, points }, columns).map((cell) => cell?.point.value)).toEqual([1.0, 0.6, 0.33, 0.96]);
  });

  it("have the day of their runs", () => {
    expect(columnsOf([row([0.5, 0.6])]).map(({ day, clock }) => `${day} ${clock}`.trim())).toEqual(["4 Oct", "5 Oct"]);
  });

  it("have the year where there are several", () => {
    expect(columnsOf([row(Array.from({ length: 200 }, () => 0.5))])[0]?.day).toBe("4 Oct 24");
  });

  it("are shared by plans that ran on the same day, where no run hides another", () => {
    const other = row([0.1, 0.2]);
    const moved = other.points.map((point) => ({ ...point, experiment: `x${point.experiment}`, time: point.time + 3600 }));
    const columns = columnsOf([row([0.5, 0.6]), { ...other, points: moved }]);
    expect(columns.map((one) => [...one.runs])).toEqual([["e0", "xe0"], ["e1", "xe1"]]);
    const twice = columnsOf([row([0.5]), { ...other, points: moved.map((point) => ({ ...point, time: START + 3600 })) }]);
    expect(twice.map((one) => [...one.runs])).toEqual([["e0", "xe0"], ["xe1"]]);
    expect(twice.map(({ day, clock }) => `${day} ${clock}`.trim())).toEqual(["4 Oct 00:01–01:00", "4 Oct 01:00"]);
  });

  it("leave out times when nothing ran", () => {
    const gap = row([0.5, 0.5]);
    const points = [...gap.points, { experiment: "late", time: START + 900 * DAY, value: 0.5 }];
    expect(columnsOf([{ ...gap, points }])).toHaveLength(3);
  });

  it("are none where there is nothing", () => {
    expect(columnsOf([])).toEqual([]);
  });
});

describe("a cell", () => {
  it("says how far it is from the first run of its row", () => {
    const change = { id: "c", before: 0.9, first: "e2", last_good: "e1", worse: true };
    const fell = row([0.9, 0.9, 0.8], { changes: [change] });
    const cells = cellsOf(fell, columnsOf([fell]));
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
    const columns = columnsOf(both);
    expect(cellsOf(both[1] ?? row([]), columns)).toEqual([null, null, expect.objectContaining({ shift: 0 })]);
  });

  it("is worse where a run is worse than the first, whatever came between", () => {
    const bad = row([1.0, 0.6, 0.33, 0.96]);
    const cells = cellsOf(bad, columnsOf([bad]));
    expect(cells.map((cell) => shown(cell?.shift ?? 0))).toEqual(["0", "−40", "−67", "−4.0"]);
    expect(cells.map((cell) => cell?.step)).toEqual([0, -3, -3, -2]);
  });
});

describe("the scale", () => {
  it("begins at the first run", () => {
    expect(firstOf(row([0.1, 0.9, 0.5]))).toBe(0.1);
    expect(firstOf(row([]))).toBe(0);
  });

  it("has the same steps on both sides", () => {
    expect([-9, -3, -1, -0.4, 0, 0.4, 1, 3, 9].map(stepOf)).toEqual([-3, -2, -1, 0, 0, 0, 1, 2, 3]);
    expect(legend().map((one) => one.step)).toEqual([-3, -2, -1, 0, 1, 2, 3]);
  });

  it("has its number and sign in each cell", () => {
    expect([-4.23, 12.3, 0.02, 9.96].map(shown)).toEqual(["−4.2", "+12", "0", "+10"]);
  });

  it("has no percent of nothing", () => {
    const none = row([0, 5], { kind: "speed" });
    expect(shown(shiftOf(none, 0, 5))).toBe("+∞");
    expect(shiftOf(none, 0, 0)).toBe(0);
    expect(stepOf(shiftOf({ ...none, higher_is_better: false }, 0, 5))).toBe(-3);
  });
});
