import { describe, expect, it } from "vitest";

import { centring, elementHeight, moved, revealing, rowsInView, scrollOf, TALLEST, topOf } from "./windowing";

const short = { rows: 100, rowHeight: 50, viewport: 500 };
const long = { rows: 1_000_000, rowHeight: 56, viewport: 700 };
const end = long.rows * long.rowHeight - long.viewport;

describe("a short list", () => {
  it("scrolls one to one", () => {
    expect(elementHeight(short)).toBe(5000);
    expect(topOf(1234, short)).toBe(1234);
    expect(scrollOf(1234, short)).toBe(1234);
  });

  it("stops at its ends", () => {
    expect(topOf(9999, short)).toBe(4500);
    expect(topOf(-3, short)).toBe(0);
  });

  it("draws what is in view and some more", () => {
    expect(rowsInView(1000, short, 2)).toEqual([18, 32]);
    expect(rowsInView(0, short)).toEqual([0, 16]);
    expect(rowsInView(4500, short)).toEqual([84, 100]);
  });

  it("reveals a row with the least movement", () => {
    expect(revealing(25, 1000, short)).toBe(1000);
    expect(revealing(5, 1000, short)).toBe(250);
    expect(revealing(40, 1000, short)).toBe(1550);
    expect(centring(50, short)).toBe(2275);
  });

  it("draws nothing of an empty list", () => {
    expect(rowsInView(0, { ...short, rows: 0 })).toEqual([0, 0]);
  });
});

describe("a million rows", () => {
  it("are no taller than browsers draw", () => {
    expect(elementHeight(long)).toBe(TALLEST);
  });

  it("are reached from the first to the last", () => {
    expect(topOf(0, long)).toBe(0);
    expect(topOf(TALLEST, long)).toBe(end);
  });

  it.each([0, 999_999, 5_000_000, 28_000_000, 55_500_000, end])("find back from %d pixels", (top) => {
    expect(topOf(scrollOf(top, long), long)).toBeCloseTo(top, 3);
  });

  it("never go back when the thumb goes on", () => {
    let before = -1;
    for (let scroll = 0; scroll <= TALLEST; scroll += 9_973) {
      const top = topOf(scroll, long);
      expect(top).toBeGreaterThan(before);
      before = top;
    }
  });

  it("move by a turn of the wheel as any list does, also in the middle", () => {
    const from = { scroll: scrollOf(28_000_000, long), top: 28_000_000 };
    expect(moved(from, from.scroll + 120, long).top).toBe(28_000_120);
  });

  it("jump by proportion when the thumb is dragged", () => {
    const to = moved({ scroll: 0, top: 0 }, TALLEST / 2, long);
    expect(to.top / end).toBeCloseTo(0.5, 2);
  });

  it("come to the first row whatever was scrolled before", () => {
    expect(moved({ scroll: 90, top: 70_000 }, 0, long)).toEqual({ scroll: 0, top: 0 });
  });
});
