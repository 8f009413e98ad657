import { beforeEach, expect, it } from "vitest";
import { draftOf, keepDraft, worthOffering } from "./draft";

beforeEach(() => {
  for (const name of ["a", "b"]) keepDraft(name, null);
});

it("keeps what was typed, by definition, and forgets it once it is saved", () => {
  keepDraft("a", { text: "name: x", etag: "1", time: 5 });
  expect(draftOf("a")?.text).toBe("name: x");
  expect(draftOf("b")).toBeNull();
  keepDraft("a", null);
  expect(draftOf("a")).toBeNull();
});

it("lets the oldest go where there are too many", () => {
  for (let number = 0; number < 25; number += 1) keepDraft(`d${number}`, { text: "x", etag: "", time: number });
  expect(draftOf("d0")).toBeNull();
  expect(draftOf("d24")).not.toBeNull();
});

it("is offered where it says something else than what is saved", () => {
  const draft = { text: "new", etag: "", time: 1 };
  expect(worthOffering(draft, "old")).toBe(true);
  expect(worthOffering(draft, "new")).toBe(false);
  expect(worthOffering(null, "old")).toBe(false);
});
