import { describe, expect, it } from "vitest";

import { parseSearch, stringifySearch } from "../../app/search";
import { apiQuery, conditions, filterOf, hasFacet, NOTHING, scoreRange, withFacet } from "./filter";
import { search } from "./search";

const read = (searched: string) => search.values(parseSearch(searched));
const none = filterOf(read(""));

describe("what an URL says", () => {
  it("is what the API filters by, without what is only looked at", () => {
    const found = read("?wrong=1&outcome=ok&where=page%3A1&low=0.2&at=7&image=2&raw=1");
    expect(apiQuery(filterOf(found))).toEqual({
      wrong: true,
      outcome: "ok",
      where: ["page:1"],
      low: 0.2,
    });
    expect(found).toMatchObject({ at: 7, image: 2, raw: true, diff: true });
  });

  it("comes back the same", () => {
    const written = "?text=a+b%26c&low=0&latency_over=2&flagged=1&sort=latency&order=desc&at=3&boxes=0";
    const kept = stringifySearch(search.validate(parseSearch(written)));
    expect(read(kept)).toEqual(read(written));
    expect(kept).toBe(written);
  });

  it("is nothing where it makes no sense", () => {
    expect(read("?low=x&order=up&wrong=maybe")).toEqual(read(""));
    expect(apiQuery(none)).toEqual({});
  });

  it("keeps a score of 0 as a limit", () => {
    expect(apiQuery(filterOf(read("?high=0")))).toEqual({ high: 0 });
  });
});

describe("a facet", () => {
  it("is taken in and out", () => {
    const once = { ...none, ...withFacet(none, "outcome", "failed") };
    expect(once.outcome).toBe("failed");
    expect(hasFacet(once, "outcome", "failed")).toBe(true);
    expect(withFacet(once, "outcome", "failed")).toEqual({ outcome: "" });
  });

  it("of metadata keeps colons in values", () => {
    const filter = { ...none, ...withFacet(none, "time", "12:30") };
    expect(filter.where).toEqual(["time:12:30"]);
    expect(conditions(filter)[0]?.text).toBe("time: 12:30");
  });

  it("of scores sets both ends", () => {
    expect(scoreRange("0.2..0.4")).toEqual([0.2, 0.4]);
    expect(scoreRange("-1.5..1e-05")).toEqual([-1.5, 1e-5]);
    expect(scoreRange("none")).toBeNull();
    const filter = { ...none, ...withFacet(none, "score", "0.2..0.4") };
    expect([filter.low, filter.high]).toEqual([0.2, 0.4]);
    expect(withFacet(filter, "score", "0.2..0.4")).toEqual({ low: null, high: null });
  });
});

describe("conditions", () => {
  const filter = { ...none, wrong: true, outcome: "ok", where: ["lang:de"], latency_over: 2, high: 0.5 };

  it("say what is filtered by", () => {
    expect(conditions(filter).map((one) => one.text)).toEqual([
      "wrong only",
      "request: answered",
      "lang: de",
      "score ≤ 0.500",
      "latency > 2 s",
    ]);
  });

  it("go one by one, or all at once", () => {
    expect(conditions(filter)[2]?.away).toEqual({ where: [] });
    expect(conditions({ ...filter, ...NOTHING })).toEqual([]);
  });
});
