import { describe, expect, it } from "vitest";
import { pathUnder, placeAt, tokensOf } from "./yaml-place";

/** Where `|` stands. */
function at(text: string) {
  const lines = text.split("\n");
  const row = lines.findIndex((line) => line.includes("|"));
  const column = lines[row]?.indexOf("|") ?? 0;
  return placeAt(lines.map((line) => line.replace("|", "")), row, column);
}

describe("the place of a cursor", () => {
  it("is a key at the top, with the keys that are there", () => {
    expect(at("name: x\nru|\nseed: 1")).toEqual({ path: [], at: "key", word: "ru", used: ["name", "seed"] });
  });

  it("is the value of a key", () => {
    expect(at("name: x\nexecutor: lo|")).toMatchObject({ path: ["executor"], at: "value", word: "lo" });
  });

  it("is a key of an entry of a list, by its number", () => {
    const text = "run_tasks:\n  - name: a\n    model: m\n  - name: b\n    mo|\n    dataset: d\n  - name: c";
    expect(at(text)).toEqual({ path: ["run_tasks", 1], at: "key", word: "mo", used: ["name", "dataset"] });
  });

  it("counts entries of a list that is not indented", () => {
    expect(at("run_tasks:\n- name: a\n- name: b\n- name: c|")).toMatchObject({ path: ["run_tasks", 2, "name"], at: "value" });
  });

  it("is an entry after a dash, which may become a key or a value", () => {
    expect(at("metrics:\n  - an|")).toMatchObject({ path: ["metrics", 0], at: "entry", word: "an" });
    expect(at("a:\n  - - x\n    - |")).toMatchObject({ path: ["a", 0, 1], at: "entry" });
  });

  it("is found in maps and lists of one line", () => {
    expect(at("run_tasks:\n  - name: a\n    resources: {cpus: 1, me|")).toEqual({
      path: ["run_tasks", 0, "resources"],
      at: "key",
      word: "me",
      used: ["cpus"],
    });
    expect(at("x: {a: [one, tw|")).toMatchObject({ path: ["x", "a", 1], at: "value", word: "tw" });
    expect(at("x: {a: {b: 1}, c: |")).toMatchObject({ path: ["x", "c"], at: "value" });
    expect(at("models: [a, b|]")).toMatchObject({ path: ["models", 1], at: "value", word: "b" });
  });

  it("is nothing in a comment, and not misled by one", () => {
    expect(at("name: x # no|")).toBeNull();
    expect(at("matrix:\n# model:\n  - model|")).toMatchObject({ path: ["matrix", 0] });
    expect(at('name: "a # b|"')).toMatchObject({ path: ["name"], at: "value" });
  });

  it("on an empty line is where its column says", () => {
    expect(at("run_tasks:\n  - name: a\n    |")).toMatchObject({ path: ["run_tasks", 0], at: "key", used: ["name"] });
    expect(at("run_tasks:\n  - name: a\n|")).toMatchObject({ path: [], at: "key", used: ["run_tasks"] });
  });

  it("survives whatever is written", () => {
    for (const text of ["|", "-|", ": |", "{[}]|", '"|', "a: 'x|", "- - - |", "\t|", "&a *b |", "? |"]) expect(() => at(text)).not.toThrow();
  });
});

describe("the path under a position", () => {
  const lines = ["run_tasks:", "  - name: a", "    resources: {cpus: 1}"];
  it("is that of the key or of the value", () => {
    expect(pathUnder(lines, 0, 3)).toEqual(["run_tasks"]);
    expect(pathUnder(lines, 1, 5)).toEqual(["run_tasks", 0, "name"]);
    expect(pathUnder(lines, 2, 17)).toEqual(["run_tasks", 0, "resources", "cpus"]);
  });
});

describe("a line's tokens", () => {
  it("are its dashes and its key; a URL is none", () => {
    expect(tokensOf("  - - a: 1").map(({ kind, column }) => [kind, column])).toEqual([
      ["item", 2],
      ["item", 4],
      ["key", 6],
    ]);
    expect(tokensOf("  - http://x")).toHaveLength(1);
    expect(tokensOf('"a b": 1')[0]?.name).toBe("a b");
  });
});
