import { describe, expect, it } from "vitest";
import {
  allErrors,
  type Answer,
  appended,
  beginOf,
  endOf,
  errorsOf,
  found,
  fresh,
  hasLater,
  indexAt,
  type Level,
  type Line,
  linesOf,
  type LogBuffer,
  marked,
  next,
  numbersOf,
  prepended,
} from "./log-buffer";

const line = (at: number, text: string, level: Level = ""): Line => ({ at, text, level });

function answer(begin: number, texts: readonly string[], rest: Partial<Answer> = {}): Answer {
  let end = begin;
  const lines = texts.map((text) => {
    const one = line(end, text);
    end += text.length + 1;
    return one;
  });
  return { begin, end, size: end, lines, first: null, ...rest };
}

const texts = (buffer: LogBuffer) => linesOf(buffer).map((one) => one.text);

describe("a long line", () => {
  const piece = (at: number, text: string): Line => ({ ...line(at, text), continued: true });

  it("has one number for all its pieces", () => {
    expect(numbersOf([line(0, "a"), line(2, "b"), piece(3, "b"), piece(4, "b"), line(6, "c")], 7)).toEqual([7, 8, 8, 8, 9]);
    expect(numbersOf([piece(3, "b"), line(6, "c")], 8)).toEqual([8, 9]);
  });

  it("keeps it when its beginning goes", () => {
    const begun = fresh({ begin: 0, end: 3, size: 6, first: 1, lines: [line(0, "a"), line(2, "b")] });
    const grown = appended(begun, { begin: 3, end: 6, size: 6, lines: [piece(3, "b"), line(4, "c")] }, 3);
    expect(grown.first).toBe(2);
    expect(numbersOf(linesOf(grown), grown.first ?? 0)).toEqual([2, 3]);
  });
});

describe("a log that grows", () => {
  it("puts new lines behind those it has", () => {
    const grown = appended(fresh(answer(0, ["one", "two"])), answer(8, ["three"]));
    expect(texts(grown)).toEqual(["one", "two", "three"]);
    expect(endOf(grown)).toBe(14);
  });

  it("stays the same object when nothing came, so that nothing is drawn again", () => {
    const buffer = fresh(answer(0, ["one"]));
    expect(appended(buffer, answer(4, []))).toBe(buffer);
  });

  it("knows that more is there though nothing was sent", () => {
    expect(hasLater(appended(fresh(answer(0, ["one"])), answer(4, [], { size: 900 })))).toBe(true);
  });

  it("goes on behind what was searched, though nothing was found there", () => {
    const searched = appended(fresh(answer(0, ["one"])), answer(4, [], { end: 800, size: 900 }));
    expect(endOf(searched)).toBe(800);
    expect(texts(searched)).toEqual(["one"]);
  });

  it("starts anew when the log was cut or written again", () => {
    const buffer = fresh(answer(0, ["a long old line", "another"]));
    expect(texts(appended(buffer, answer(0, ["new"])))).toEqual(["new"]);
  });

  it("starts anew where a stretch is missing between", () => {
    expect(texts(appended(fresh(answer(0, ["one"])), answer(500, ["far"])))).toEqual(["far"]);
  });

  it("drops whole stretches from its head when it holds too much, and counts them", () => {
    const buffer = appended(fresh(answer(0, ["a", "b"], { first: 1 })), answer(4, ["c", "d"]), 3);
    expect(texts(buffer)).toEqual(["c", "d"]);
    expect(buffer.first).toBe(3);
    expect(beginOf(buffer)).toBe(4);
  });

  it("never drops the stretch that came last, however long", () => {
    expect(linesOf(appended(fresh(answer(0, ["a"])), answer(2, ["b", "c", "d"]), 2))).toHaveLength(3);
  });
});

describe("reading back", () => {
  it("puts earlier lines in front, with their number", () => {
    const buffer = prepended(fresh(answer(8, ["three"])), answer(0, ["one", "two"], { first: 1 }));
    expect(texts(buffer)).toEqual(["one", "two", "three"]);
    expect(buffer.first).toBe(1);
  });

  it("goes on before what was searched, though nothing was found there", () => {
    const buffer = prepended(fresh(answer(800, ["hit"])), answer(400, [], { end: 800 }));
    expect(beginOf(buffer)).toBe(400);
  });

  it("leaves out what does not touch", () => {
    const buffer = fresh(answer(80, ["x"]));
    expect(prepended(buffer, answer(0, ["one"]))).toBe(buffer);
  });

  it("lets go of the newest lines when it holds too much", () => {
    const buffer = prepended(fresh(answer(8, ["three"])), answer(0, ["one", "two"], { size: 14 }), 2);
    expect(texts(buffer)).toEqual(["one", "two"]);
    expect(hasLater(buffer)).toBe(true);
  });
});

describe("looking for something", () => {
  const lines = [line(0, "Loading"), line(8, "Error: a", "error"), line(17, "  at x", "error"), line(24, "ok"), line(27, "ERROR b", "error")];

  it("finds words whatever their case", () => {
    expect(found(lines, "error")).toEqual([8, 27]);
    expect(found(lines, "  ")).toEqual([]);
  });

  it("jumps to where an error begins, not to each line of its traceback", () => {
    expect(errorsOf(lines)).toEqual([8, 27]);
  });

  it("takes a traceback as one error, from its head to its last line", () => {
    const traceback = [line(0, "Traceback (most recent call last):", "error"), line(1, '  File "x.py", line 3'), line(2, "    run()"), line(3, "ValueError: no", "error"), line(4, "done"), line(5, "KeyError", "error")];
    expect(errorsOf(traceback)).toEqual([0, 5]);
  });

  it("goes round at both ends", () => {
    expect(next([8, 27], 27, 1)).toBe(8);
    expect(next([8, 27], 8, -1)).toBe(27);
    expect(next([8, 27], -1, 1)).toBe(8);
    expect(next([], 0, 1)).toBeNull();
  });

  it("takes errors beyond what is held from the server's list, and those held from the lines", () => {
    const buffer = fresh({ begin: 10_000, end: 20_000, size: 40_000, lines: [] });
    expect(allErrors(buffer, [12_000], [10, 12_000, 12_100, 30_000])).toEqual([10, 12_000, 30_000]);
  });

  it("takes lines that stand close together for one error where it cannot see them", () => {
    expect(allErrors(fresh({ begin: 90_000, end: 90_001, size: 90_001, lines: [] }), [], [500, 620, 800, 50_000])).toEqual([500, 50_000]);
  });

  it("finds a line by its offset, or the one behind it", () => {
    expect(indexAt(lines, 17)).toBe(2);
    expect(indexAt(lines, 9)).toBe(2);
    expect(indexAt(lines, 99)).toBe(-1);
  });

  it("marks every find in a line", () => {
    expect(marked("an Error, an error", "error")).toEqual(["an ", "Error", ", an ", "error", ""]);
    expect(marked("plain", "")).toEqual(["plain"]);
  });

  it("marks nothing where case changes lengths", () => {
    expect(marked("İstanbul error", "error")).toEqual(["İstanbul error"]);
  });
});
