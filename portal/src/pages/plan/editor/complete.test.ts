import { describe, expect, it } from "vitest";
import experiments from "../../../../../registries/schemas/experiments.json";
import { optionsAt } from "./complete";
import type { Schema } from "./schema";

const known = { schema: experiments as unknown as Schema, names: { models: ["tiny-vlm", "Qwen/Qwen2-VL-2B"], ml_tasks: ["vqa"] } };
const labels = (place: Parameters<typeof optionsAt>[0]) => optionsAt(place, known).map((option) => option.label);

describe("completion", () => {
  it("offers keys that are not there yet", () => {
    const found = labels({ path: ["run_tasks", 0], at: "key", word: "", used: ["name", "model"] });
    expect(found).toContain("dataset");
    expect(found).not.toContain("model");
  });

  it("offers names of definitions and words of the schema as values", () => {
    expect(labels({ path: ["run_tasks", 0, "model"], at: "value", word: "", used: [] })).toEqual(expect.arrayContaining(["tiny-vlm"]));
    expect(labels({ path: ["matrix", 0, "models", 1], at: "value", word: "", used: [] })).toContain("Qwen/Qwen2-VL-2B");
    expect(labels({ path: ["executor"], at: "value", word: "", used: [] })).toEqual(expect.arrayContaining(["local", "slurm"]));
  });

  it("offers nothing without a schema, and nothing where nothing belongs", () => {
    expect(optionsAt({ path: [], at: "key", word: "", used: [] }, { schema: null, names: {} })).toEqual([]);
    expect(labels({ path: ["name", "x"], at: "key", word: "", used: [] })).toEqual([]);
  });
});
