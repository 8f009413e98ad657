import { describe, expect, it } from "vitest";

import { drawn, ticksOf } from "./line";

const frame = { width: 110, height: 100, left: 10, right: 0, top: 0, bottom: 0 };
const point = (value: number, half: number | null = null) => ({
  time: 0,
  value,
  low: half === null ? null : value - half,
  high: half === null ? null : value + half,
});

describe("a line", () => {
  it("goes from edge to edge, greater values above", () => {
    const { places, path } = drawn([point(1), point(3), point(2)], frame);
    expect(places.map((one) => one.x)).toEqual([10, 60, 110]);
    expect(places[1]?.y).toBeLessThan(places[2]?.y ?? 0);
    expect(path.startsWith("M10.0,")).toBe(true);
  });

  it("has a band only where there are intervals", () => {
    expect(drawn([point(1), point(2)], frame).band).toBe("");
    const { band } = drawn([point(1, 0.1), point(2, 0.1), point(1), point(1, 0.2)], frame);
    expect(band.match(/Z/g)).toHaveLength(2);
  });

  it("of one point or of equal ones is in the middle", () => {
    expect(drawn([point(5)], frame).places).toEqual([{ x: 60, y: 50 }]);
    expect(drawn([point(0), point(0)], frame).places.map((one) => one.y)).toEqual([50, 50]);
  });

  it("of no points is nothing", () => {
    expect(drawn([], frame)).toMatchObject({ path: "", band: "", places: [] });
  });
});

describe("ticks", () => {
  it("are round and few", () => {
    expect(ticksOf(0.82, 0.94)).toEqual([0.85, 0.9]);
    expect(ticksOf(0, 100)).toEqual([0, 50, 100]);
    expect(ticksOf(-1, 1)).toEqual([-1, -0.5, 0, 0.5, 1]);
  });
});
