import { describe, expect, it } from "vitest";

import { wordDiff } from "./words";

describe("two texts by words", () => {
  it("keep what they share in order", () => {
    expect(wordDiff("total 120.00 EUR", "the total is 120.00")).toEqual([
      { kind: "added", text: "the" },
      { kind: "same", text: "total" },
      { kind: "added", text: "is" },
      { kind: "same", text: "120.00" },
      { kind: "lost", text: "EUR" },
    ]);
  });

  it("are the same, or have nothing in common", () => {
    expect(wordDiff("a b", " a  b ")).toEqual([{ kind: "same", text: "a b" }]);
    expect(wordDiff("a", "b")).toEqual([
      { kind: "lost", text: "a" },
      { kind: "added", text: "b" },
    ]);
    expect(wordDiff("", "")).toEqual([]);
  });

  it("stay quick and whole when they are long", () => {
    const long = Array.from({ length: 5000 }, (_, at) => `w${at}`).join(" ");
    const found = wordDiff(long, long);
    expect(found.map((one) => one.kind)).toEqual(["same", "lost", "added"]);
    expect(found.slice(0, 2).map((one) => one.text).join(" ")).toBe(long);
  });
});
