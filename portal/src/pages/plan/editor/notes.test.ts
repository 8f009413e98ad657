import { describe, expect, it } from "vitest";
import { lineStarts, meant, placeOf } from "./notes";

const TEXT = "name: x\nmodel: tiny  # it\n  - 'a b': 1\n😀: bad\n";
const at = (line: number, column: number) => {
  const { from, to } = placeOf(TEXT, lineStarts(TEXT), { line, column, end_line: null, end_column: null });
  return TEXT.slice(from, to);
};

describe("a problem's place", () => {
  it("is what stands there: a key, a value, a word in quotes", () => {
    expect(at(2, 1)).toBe("model");
    expect(at(2, 8)).toBe("tiny");
    expect(at(3, 5)).toBe("'a b'");
  });

  it("counts characters as the server does", () => {
    expect(at(4, 4)).toBe("bad");
  });

  it("is something even where the text ends before it", () => {
    expect(at(1, 99).length).toBe(1);
    expect(at(99, 1).length).toBeLessThanOrEqual(1);
    expect(placeOf("", [0], { line: 3, column: 3, end_line: null, end_column: null })).toEqual({ from: 0, to: 0 });
  });
});

describe("what was meant", () => {
  const note = { message: "unknown ML task 'ocrr' (did you mean 'ocr'?)", remedy: "" };
  it("is offered where the wrong word still stands there", () => {
    expect(meant(note, "ocrr")).toBe("ocr");
    expect(meant(note, '"ocrr"')).toBe("ocr");
    expect(meant(note, "ocr")).toBeNull();
    expect(meant({ message: "unknown key 'splitt'", remedy: "did you mean 'split'?" }, "splitt")).toBe("split");
    expect(meant({ message: "key 'x' is missing", remedy: "" }, "x")).toBeNull();
  });
});
