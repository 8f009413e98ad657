import { describe, expect, it } from "vitest";
import { namesIn, planOf, withValue } from "./plan-text";

const PLAN = `# A comparison.
name: comparison
parallelism: 4            # workers
matrix:
  - ml_task: vqa          # questions
    models: [a, org/b]    # two
    datasets:
      # the small one first
      - docvqa
      - chartqa   # charts
    generation: {max_tokens: 96}
run_tasks:
  - shared
  - name: one
    model: a
`;

describe("a plan's text", () => {
  it("has parts that a form can show", () => {
    const plan = planOf(PLAN);
    expect(plan.parts.map((one) => one.title)).toEqual(["Matrix 1", "Run task one"]);
    expect(namesIn(plan.at(["matrix", 0, "models"]))).toEqual(["a", "org/b"]);
    expect(plan.at(["run_tasks", 1, "model"])).toBe("a");
    expect(planOf("name: [").broken).toBe(true);
    expect(planOf("").parts).toEqual([]);
  });

  it("changes a list in one line there, and leaves its comment", () => {
    expect(withValue(PLAN, ["matrix", 0, "models"], ["a", "c: d"])).toBe(PLAN.replace("[a, org/b]", '[a, "c: d"]'));
  });

  it("adds and removes lines of a list", () => {
    const more = withValue(PLAN, ["matrix", 0, "datasets"], ["docvqa", "chartqa", "cord"]);
    expect(more).toBe(PLAN.replace("# charts\n", "# charts\n      - cord\n"));
    expect(withValue(more, ["matrix", 0, "datasets"], ["docvqa", "cord"])).toBe(PLAN.replace("chartqa   # charts", "cord"));
  });

  it("adds a key where it belongs, and removes it without a trace", () => {
    const more = withValue(PLAN, ["matrix", 0, "prompts"], ["p"]);
    expect(more).toBe(PLAN.replace("# charts\n", "# charts\n    prompts: [p]\n"));
    expect(withValue(more, ["matrix", 0, "prompts"], null)).toBe(PLAN);
    expect(withValue(PLAN, ["limit"], 50)).toBe(PLAN.replace("# workers\n", "# workers\nlimit: 50\n"));
    expect(withValue(PLAN, ["limit"], null)).toBe(PLAN);
  });

  it("rewrites what has no lines of its own, and keeps every other value", () => {
    const tight = "name: x\nmatrix: [{ml_task: vqa, models: [a], datasets: [d]}]\n";
    const more = withValue(tight, ["matrix", 0, "limit"], 5);
    expect(planOf(more).at(["matrix", 0])).toEqual({ ml_task: "vqa", models: ["a"], datasets: ["d"], limit: 5 });
    expect(planOf(withValue(tight, ["matrix", 0, "ml_task"], null)).at(["matrix", 0])).toEqual({ models: ["a"], datasets: ["d"] });
  });

  it("follows anchors, and leaves no alias without one", () => {
    const text = "name: x\nmatrix:\n  - models: &all [a, b]   # both\n    datasets: [d]\n    resources: &small {cpus: 1}\n  - models: *all\n    resources: *small\nrun_tasks:\n  - &one\n    name: one\n    model: a\n  - *one\n";
    const plan = planOf(text);
    expect(plan.broken).toBe(false);
    expect(plan.parts.map((one) => one.title)).toEqual(["Matrix 1", "Matrix 2", "Run task one"]);
    expect(namesIn(plan.at(["matrix", 1, "models"]))).toEqual(["a", "b"]);
    expect(withValue(text, ["matrix", 1, "models"], ["c"])).toBe(text.replace("*all", "[c]"));
    expect(withValue(text, ["matrix", 0, "models"], ["c"])).toBe(text.replace("[a, b]", "[c]"));
    expect(withValue(text, ["matrix", 0, "models"], null)).toBe(text);
    expect(planOf("name: *none\n").broken).toBe(true);
    expect(planOf(`a: &a [${"1,".repeat(20)}]\nb: &b [${"*a,".repeat(20)}]\nc: [${"*b,".repeat(20)}]\n`).broken).toBe(true);
  });

  it("holds what was set, whatever the layout", () => {
    const layouts = [PLAN, PLAN.replaceAll("\n", "\r\n"), PLAN.trimEnd(), PLAN.replace("- ml_task: vqa          # questions\n    models", "- models")];
    for (const text of layouts) {
      for (const value of [["a"], ["org/b", "новая", "- x"], ["1", "true", "#"]]) {
        for (const key of ["models", "datasets", "prompts"]) {
          expect(planOf(withValue(text, ["matrix", 0, key], value)).at(["matrix", 0, key])).toEqual(value);
        }
      }
    }
  });
});
