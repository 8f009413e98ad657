import { expect, it } from "vitest";
import type { DefinitionRow } from "../../api/schema";
import { byKind, filtered } from "./filter";

const row = (name: string, origin: DefinitionRow["origin"] = "own", kind: DefinitionRow["kind"] = "plans"): DefinitionRow => ({
  id: name, kind, name, origin, folder: "nightly", writable: false, updated: 0, counts: true,
});

it("finds definitions by words in any order, and the user's own", () => {
  const rows = [row("docvqa-large"), row("ocr"), row("docvqa-small", "shipped")];
  expect(filtered(rows, "large DocVQA", false).map((one) => one.name)).toEqual(["docvqa-large"]);
  expect(filtered(rows, "docvqa", true).map((one) => one.name)).toEqual(["docvqa-large"]);
  expect(filtered(rows, "nightly", false)).toHaveLength(3);
});

it("counts them by kind", () => {
  expect(byKind([row("a"), row("b"), row("c", "own", "models")])).toEqual(new Map([["plans", 2], ["models", 1]]));
});
