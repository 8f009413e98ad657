import { describe, expect, it } from "vitest";
import { crc32, nameOf, quoted } from "./bundle";

const KEPT = ["after", "theme", "size"];

describe("answers of a bundle", () => {
  it.each([
    ["experiments/E/run-tasks", "experiments/E/run-tasks"],
    ["experiments/E/run-tasks?limit=50&after=k9", "experiments/E/run-tasks?after=k9"],
    ["experiments/E/figures/tokens?theme=dark&after=2", "experiments/E/figures/tokens?after=2&theme=dark"],
    ["experiments/a%20b/run-tasks/T/samples/7/images/0?size=thumb", "experiments/a b/run-tasks/T/samples/7/images/0?size=thumb"],
    ["experiments/E/report/my%20report.html", "report/my~20report.html"],
  ])("%s", (place, name) => {
    expect(nameOf(place, KEPT)).toBe(name);
  });

  it("have reports under names that every file system takes", () => {
    expect(quoted("..a/ü~")).toBe("~2E.a~2F~C3~BC~7E");
  });

  // The same as zlib.crc32 of Python, which writes the names.
  it.each([
    ["", 0],
    ["123456789", 0xcbf43926],
    ["session", 0xd044d5d4],
    ["Привет/7?theme=dark", 0x123c9026],
  ])("are found by the checksum of their name: %s", (name, sum) => {
    expect(crc32(name)).toBe(sum);
  });
});
