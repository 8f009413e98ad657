import { describe, expect, it } from "vitest";
import { choice, flag, list, number, parseSearch, searchOf, stringifySearch, text } from "./search";

const page = searchOf({ q: text(), state: list(), low: number(), size: number(20), wrong: flag(), tab: choice(["tasks", "logs"], "tasks") });

describe("what stands in the URL", () => {
  it("is complete when read, whatever is missing", () => {
    expect(page.values({})).toEqual({ q: "", state: [], low: null, size: 20, wrong: false, tab: "tasks" });
  });

  it("leaves out what is the default", () => {
    expect(page.validate({ q: "", state: [], size: 20, wrong: false, tab: "tasks" })).toEqual({});
    expect(page.validate({ q: "a", tab: "logs", wrong: true })).toEqual({ q: "a", tab: "logs", wrong: true });
  });

  it("falls back where somebody wrote nonsense", () => {
    expect(page.values({ tab: "<script>", low: "many", size: "Infinity", wrong: "perhaps" })).toMatchObject({ tab: "tasks", low: null, size: 20, wrong: false });
  });

  it("takes one value for a list of one", () => {
    expect(page.values({ state: "done" }).state).toEqual(["done"]);
  });

  it("comes back as it was written", () => {
    const search = { q: "a & b = ü?", state: ["done", "lost"], low: 0, wrong: true };
    const written = stringifySearch(page.validate(search));
    expect(written).toContain("state=done&state=lost");
    expect(page.values(parseSearch(written))).toMatchObject(search);
  });

  it("tells a list that was emptied from one that was never there", () => {
    const preset = searchOf({ state: list(["running"]) });
    expect(preset.values(parseSearch(stringifySearch(preset.validate({ state: [] }))))).toEqual({ state: [] });
    expect(preset.values(parseSearch(""))).toEqual({ state: ["running"] });
  });
});
