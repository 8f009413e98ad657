import { describe, expect, it } from "vitest";
import { fileOf, quoted } from "./bundle";

const KEPT = ["after", "theme", "size"];

describe("files of a bundle", () => {
  it.each([
    ["experiments/E/run-tasks", "data/experiments/E/run-tasks.json"],
    ["experiments/E/run-tasks?after=k9&limit=50", "data/experiments/E/run-tasks~~after~~k9.json"],
    ["experiments/E/figures/tokens?theme=dark", "data/experiments/E/figures/tokens~~theme~~dark.json"],
    ["experiments/E/run-tasks/T/samples/7", "data/experiments/E/run-tasks/T/samples/7.json"],
    ["experiments/E/run-tasks/T/samples/7/images/0?size=thumb", "data/experiments/E/run-tasks/T/samples/7/images/0~~size~~thumb.webp"],
    ["experiments/E/report/report.html", "data/experiments/E/report/report.html"],
  ])("%s", (place, file) => {
    expect(fileOf(place, KEPT)).toBe(file);
  });

  it("have names that every file system takes", () => {
    expect(quoted("..a/ü~")).toBe("~2E.a~2F~C3~BC~7E");
    expect(fileOf("experiments/a%20b", KEPT)).toBe("data/experiments/a~20b.json");
  });
});
