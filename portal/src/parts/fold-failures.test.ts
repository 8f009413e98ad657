import { describe, expect, it } from "vitest";
import type { Failure } from "../api/schema";
import { folded } from "./fold-failures";

const failure = (cause: string, rest: Partial<Failure> = {}): Failure => ({
  cause, kind: "answers", count: 1, run_tasks: [], models: [], nodes: [], first: null, last: null, log: null, ...rest,
});

describe("failures by cause", () => {
  it("adds up what many run tasks told of one cause", () => {
    const found = folded([
      failure("hung up", { count: 2, run_tasks: ["a"], models: ["m"], first: 5, last: 9, log: "x" }),
      failure("no memory", { count: 4 }),
      failure("hung up", { count: 3, run_tasks: ["b"], models: ["m"], first: 3, last: 7, log: "y" }),
    ]);
    expect(found).toHaveLength(2);
    expect(found[0]).toMatchObject({ cause: "hung up", count: 5, run_tasks: ["a", "b"], models: ["m"], first: 3, last: 9, log: null });
  });

  it("keeps apart what is of another kind", () => {
    expect(folded([failure("gone", { kind: "lost" }), failure("gone")])).toHaveLength(2);
  });

  it("puts the most frequent first, and keeps the order of equals", () => {
    expect(folded([failure("a"), failure("b"), failure("c", { count: 9 })]).map((one) => one.cause)).toEqual(["c", "a", "b"]);
  });
});
