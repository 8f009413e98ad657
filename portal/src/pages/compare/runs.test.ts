import { describe, expect, it } from "vitest";

import { parseSearch, stringifySearch } from "../../app/search";
import { added, based, letter, MOST, removed, shifted, usable } from "./runs";
import { search } from "./search";

describe("the runs compared", () => {
  it("stand in the URL in their order", () => {
    const read = (written: string) => search.values(parseSearch(written));
    expect(read("?runs=b&runs=a&change=won&candidate=2").runs).toEqual(["b", "a"]);
    expect(stringifySearch(search.validate({ runs: ["b", "a"], tab: "scores" }))).toBe("?runs=b&runs=a");
    expect(read("?change=%3Cb%3E&tab=x&candidate=y")).toEqual(read(""));
  });

  it("are each there once, eight at most", () => {
    expect(usable(["a", "b", "a"])).toEqual(["a", "b"]);
    expect(usable("abcdefghijk".match(/./g) ?? [])).toHaveLength(MOST);
  });

  it("are added, removed and put in another order", () => {
    expect(added(["a", "b"], "c")).toEqual(["a", "b", "c"]);
    expect(added(["a", "b"], "a")).toEqual(["a", "b"]);
    expect(added("abcdefgh".match(/./g) ?? [], "i")).toHaveLength(MOST);
    expect(removed(["a", "b"], "a")).toEqual(["b"]);
    expect(shifted(["a", "b", "c"], "c", -1)).toEqual(["a", "c", "b"]);
    expect(shifted(["a", "b", "c"], "a", -1)).toEqual(["a", "b", "c"]);
    expect(shifted(["a", "b", "c"], "a", 9)).toEqual(["b", "c", "a"]);
    expect(shifted(["a"], "x", 1)).toEqual(["a"]);
  });

  it("have one baseline, the first, called A", () => {
    expect(based(["a", "b", "c"], "c")).toEqual(["c", "a", "b"]);
    expect(letter(0)).toBe("A");
    expect(letter(7)).toBe("H");
  });
});
