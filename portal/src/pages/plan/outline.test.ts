import { expect, it } from "vitest";
import { nameIn, outlineOf } from "./outline";

it("tells a plan's sections and its run tasks by name", () => {
  const text = "# a comment\nname: demo\nrun_tasks:\n  - name: vqa  # one\n    resources:\n      - x\n  - ml_task: ocr\n    name: other\nonly: [a]\nreports:\n- csv\n";
  expect(outlineOf(text)).toEqual([
    { title: "name", line: 2, depth: 0 },
    { title: "run_tasks", line: 3, depth: 0 },
    { title: "vqa", line: 4, depth: 1 },
    { title: "ocr", line: 7, depth: 1 },
    { title: "only", line: 9, depth: 0 },
    { title: "reports", line: 10, depth: 0 },
    { title: "csv", line: 11, depth: 1 },
  ]);
});

it("is short for a long text, and nothing for none", () => {
  expect(outlineOf("")).toEqual([]);
  expect(outlineOf("a: 1\n".repeat(2000)).length).toBe(500);
});

it("finds the name that a definition gives itself, and none in its parts", () => {
  expect(nameIn("# name: no\nrun_tasks:\n  - name: vqa\nname: 'Счета 2026' # mine\n")).toBe("Счета 2026");
  expect(nameIn("run_tasks:\n  - name: vqa\n")).toBe("");
});
