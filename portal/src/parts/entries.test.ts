import { describe, expect, it } from "vitest";
import { entriesOf, entryOf, listIn, numberIn, shown, textIn } from "./entries";

describe("records without a type", () => {
  it("give what is there in the form that is wanted, and nothing else", () => {
    const entry = entryOf({ value: 0.5, name: "anls", list: [1], odd: Infinity });
    expect(numberIn(entry, "value")).toBe(0.5);
    expect(numberIn(entry, "name")).toBeNull();
    expect(numberIn(entry, "odd")).toBeNull();
    expect(textIn(entry, "name")).toBe("anls");
    expect(textIn(entry, "value")).toBe("");
    expect(listIn(entry, "list")).toEqual([1]);
    expect(listIn(entry, "none")).toEqual([]);
    expect(numberIn(null, "value")).toBeNull();
  });

  it("are records and not lists", () => {
    expect(entryOf([1])).toBeNull();
    expect(entriesOf([{ a: 1 }, 2, null])).toEqual([{ a: 1 }]);
    expect(entriesOf("no list")).toEqual([]);
  });

  it("are shown in a line: text as it is, the rest as JSON", () => {
    expect(shown("text")).toBe("text");
    expect(shown({ a: [1, null] })).toBe('{"a":[1,null]}');
    expect(shown(undefined)).toBe("–");
  });
});
