import { describe, expect, it } from "vitest";

import { CLOSEST, filling, fitted, panned, STEP, wheelFactor, zoomed } from "./zoom";

const page = { width: 1000, height: 2000 };
const frame = { width: 500, height: 400 };

describe("an image", () => {
  it("fits into its frame, in the middle", () => {
    expect(fitted(page, frame)).toEqual({ scale: 0.192, x: 154, y: 8 });
  });

  it("is not blown up by much to fit", () => {
    expect(fitted({ width: 100, height: 100 }, frame)).toEqual({ scale: 3, x: 100, y: 50 });
  });

  it("can be read at the frame's width", () => {
    expect(filling(page, frame)).toEqual({ scale: 0.5, x: 0, y: 0 });
  });

  it("keeps the point under the pointer when zoomed", () => {
    const before = { scale: 1, x: -200, y: -300 };
    const at = { x: 250, y: 200 };
    const after = zoomed(before, 2, at, page, frame);
    expect((at.x - after.x) / after.scale).toBeCloseTo((at.x - before.x) / before.scale);
    expect((at.y - after.y) / after.scale).toBeCloseTo((at.y - before.y) / before.scale);
  });

  it("comes back by the same steps", () => {
    const before = { scale: 1, x: -200, y: -300 };
    const at = { x: 250, y: 200 };
    const after = zoomed(zoomed(before, STEP, at, page, frame), 1 / STEP, at, page, frame);
    expect(after.scale).toBeCloseTo(1);
    expect(after.x).toBeCloseTo(-200);
  });

  it("has a closest and a farthest look", () => {
    const view = fitted(page, frame);
    expect(zoomed(view, 1e9, { x: 0, y: 0 }, page, frame).scale).toBe(CLOSEST);
    expect(zoomed(view, 1e-9, { x: 0, y: 0 }, page, frame).scale).toBeCloseTo(0.048);
  });

  it("cannot be pushed out of its frame", () => {
    const view = { scale: 1, x: 0, y: 0 };
    expect(panned(view, 900, 900, page, frame)).toEqual({ scale: 1, x: 0, y: 0 });
    expect(panned(view, -9000, -9000, page, frame)).toEqual({ scale: 1, x: -500, y: -1600 });
  });

  it("without size does not break the view", () => {
    expect(fitted({ width: 0, height: 0 }, frame).scale).toBe(3);
  });

  it("zooms in when the wheel turns away, by little for little", () => {
    expect(wheelFactor(-120)).toBeGreaterThan(1);
    expect(wheelFactor(4)).toBeLessThan(1);
    expect(wheelFactor(-1e6)).toBe(wheelFactor(-120));
  });
});
