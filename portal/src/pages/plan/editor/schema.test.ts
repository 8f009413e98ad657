import { describe, expect, it } from "vitest";
import experiments from "../../../../../registries/schemas/experiments.json";
import { aboutAt, keysAt, namesAt, type Schema, valuesAt } from "./schema";

const schema = experiments as unknown as Schema;

describe("the schema of a plan", () => {
  it("knows the keys at the top, and which are needed", () => {
    const keys = keysAt(schema, []);
    expect(keys.map((key) => key.name)).toContain("run_tasks");
    expect(keys.find((key) => key.name === "name")?.required).toBe(true);
    expect(keys.find((key) => key.name === "matrix")?.below).toBe(true);
  });

  it("knows those of a run task, through references and alternatives", () => {
    const names = keysAt(schema, ["run_tasks", 3]).map((key) => key.name);
    expect(names).toEqual(expect.arrayContaining(["ml_task", "model", "resources"]));
    expect(keysAt(schema, ["run_tasks", 0, "resources"]).map((key) => key.name)).toContain("memory_gb");
    expect(keysAt(schema, ["run_tasks", 0, "model"]).map((key) => key.name)).toContain("engine_options");
  });

  it("knows the words that a value may be", () => {
    expect(valuesAt(schema, ["executor"])).toEqual(expect.arrayContaining(["local", "slurm"]));
    expect(valuesAt(schema, ["stages", 0])).toContain("evaluation");
  });

  it("tells what a key is for", () => {
    expect(aboutAt(schema, ["run_tasks", 0, "resources", "time_limit"])?.about).toMatch(/Time limit/);
    expect(aboutAt(schema, ["nothing", "like", "it"])).toBeNull();
  });

  it("says which definitions' names belong where", () => {
    expect(namesAt(["run_tasks", 0, "model"])).toBe("models");
    expect(namesAt(["run_tasks", 0, "model", "name"])).toBe("models");
    expect(namesAt(["matrix", 0, "datasets", 2])).toBe("datasets");
    expect(namesAt(["name"])).toBeNull();
  });

  it("does not go round in circles", () => {
    const round: Schema = { $ref: "#/$defs/A", $defs: { A: { anyOf: [{ $ref: "#/$defs/A" }, { type: "object", properties: { a: { $ref: "#/$defs/A" } } }] } } };
    expect(keysAt(round, ["a", "a", "a"]).map((key) => key.name)).toEqual(["a"]);
  });
});
