import { describe, expect, it } from "vitest";

import { CHUNK, chunksOf, numberOf, rowOf } from "./chunks";

const chunks = new Map([
  [0, ["a", "b"]],
  [7, ["x", "y"]],
]);

describe("chunks of a long list", () => {
  it("are those that rows in view lie in", () => {
    expect(chunksOf(0, 20)).toEqual([0]);
    expect(chunksOf(CHUNK - 1, CHUNK + 1)).toEqual([0, 1]);
    expect(chunksOf(CHUNK, 2 * CHUNK)).toEqual([1]);
    expect(chunksOf(5, 5)).toEqual([]);
  });

  it("have their rows by number", () => {
    expect(rowOf(chunks, 1)).toBe("b");
    expect(rowOf(chunks, 7 * CHUNK + 1)).toBe("y");
    expect(rowOf(chunks, 300)).toBeUndefined();
  });

  it("say where a row is", () => {
    expect(numberOf(chunks, (row) => row === "y")).toBe(7 * CHUNK + 1);
    expect(numberOf(chunks, (row) => row === "z")).toBeUndefined();
  });
});
