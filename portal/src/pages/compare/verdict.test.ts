import { describe, expect, it } from "vitest";

import { digitsFor, interval, onStrip, reachOf, signed, verdictOf, whyNone } from "./verdict";

const row = { difference: -0.068, low: -0.117, high: -0.02, n: 120, verdict: "worse" };

describe("a verdict", () => {
  it("is shown with its interval and n", () => {
    expect(verdictOf(row)).toBe("worse");
  });

  it("is not shown without", () => {
    expect(verdictOf({ ...row, low: null })).toBe("none");
    expect(whyNone({ ...row, low: null })).toBe("no verdict: no interval");
    expect(verdictOf({ ...row, n: 0 })).toBe("none");
    expect(whyNone({ ...row, n: 0 })).toBe("no verdict: no pairs");
    expect(verdictOf({ ...row, difference: null })).toBe("none");
  });

  it("that nobody knows is none", () => {
    expect(verdictOf({ ...row, verdict: "marvellous" })).toBe("none");
  });
});

describe("a difference", () => {
  it("has its sign", () => {
    expect(signed(0.0214)).toBe("+0.021");
    expect(signed(-0.068)).toBe("−0.068");
    expect(signed(-0.0001)).toBe("0.000");
    expect(interval(-0.117, 0.02)).toBe("[−0.117, +0.020]");
  });

  it("has as many digits as tell it apart", () => {
    expect(digitsFor(0.5, null)).toBe(3);
    expect(digitsFor(215, 129)).toBe(1);
    expect(digitsFor(21500)).toBe(0);
  });

  it("lies on a strip around zero that all rows share", () => {
    const reach = reachOf([row, { ...row, high: 0.2 }]);
    expect(reach).toBe(0.2);
    expect(onStrip({ ...row, low: -0.2, difference: 0, high: 0.2 }, reach)).toEqual({ left: 0, width: 100, at: 50 });
    expect(onStrip({ ...row, low: null }, reach)).toBeNull();
  });
});
