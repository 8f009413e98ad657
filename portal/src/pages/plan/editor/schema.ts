/** What a JSON Schema says at a place of a definition. The schemas are our own: no remote references, no cycles without end. */
import type { Path } from "./yaml-place";

export type Schema = Readonly<Record<string, unknown>>;

export interface KeyWord {
  readonly name: string;
  readonly about: string;
  /** Its type and default, in short. */
  readonly type: string;
  readonly required: boolean;
  /** Whether its value continues below it, in a map or a list. */
  readonly below: boolean;
}

function record(value: unknown): Schema | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Schema) : null;
}

function records(value: unknown): readonly Schema[] {
  return Array.isArray(value) ? value.map(record).filter((one) => one !== null) : [];
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** A schema with its reference followed, and the alternatives it has. */
export function alternatives(root: Schema, schema: Schema, depth = 0): readonly Schema[] {
  if (depth > 8) return [];
  const reference = text(schema["$ref"]);
  if (reference) {
    const found = record(record(root["$defs"])?.[reference.replace("#/$defs/", "")]);
    return found ? alternatives(root, found, depth + 1) : [];
  }
  const inner = ["anyOf", "oneOf", "allOf"].flatMap((word) => records(schema[word]));
  return inner.length > 0 ? inner.flatMap((one) => alternatives(root, one, depth + 1)) : [schema];
}

function step(schema: Schema, part: string | number): readonly Schema[] {
  if (typeof part === "number") {
    const items = record(schema["items"]);
    return items ? [items] : [];
  }
  const own = record(record(schema["properties"])?.[part]);
  if (own) return [own];
  const other = record(schema["additionalProperties"]);
  return other ? [other] : [];
}

/** All schemas that a value at a path may follow, and the one that describes it. */
export function schemasAt(root: Schema, path: Path): { readonly all: readonly Schema[]; readonly described: Schema | null } {
  let all = alternatives(root, root);
  let described: Schema | null = root;
  for (const part of path) {
    const next = all.flatMap((one) => step(one, part));
    described = next[0] ?? null;
    all = next.flatMap((one) => alternatives(root, one));
  }
  return { all, described };
}

function typeOf(root: Schema, schema: Schema): string {
  const names = alternatives(root, schema).map((one) => {
    const words = valuesIn(one);
    if (words.length > 0) return words.slice(0, 5).join(" | ");
    if (one["type"] === "array") return "list";
    return { object: "map", string: "text", integer: "whole number" }[text(one["type"])] ?? text(one["type"]);
  });
  const known = schema["default"];
  const simple = ["string", "number", "boolean"].includes(typeof known) && known !== "";
  const types = [...new Set(names)].filter((one) => one && one !== "null").join(" or ");
  return simple ? `${types}, default ${String(known)}` : types;
}

/** Keys of a map at a path. */
export function keysAt(root: Schema, path: Path): readonly KeyWord[] {
  const found = new Map<string, KeyWord>();
  for (const schema of schemasAt(root, path).all) {
    const required = Array.isArray(schema["required"]) ? (schema["required"] as unknown[]) : [];
    for (const [name, raw] of Object.entries(record(schema["properties"]) ?? {})) {
      const own = record(raw);
      if (!own || found.has(name)) continue;
      const kinds = alternatives(root, own).map((one) => one["type"]);
      const below = kinds.some((kind) => kind === "object" || kind === "array") && !kinds.includes("string");
      found.set(name, { name, about: text(own["description"]), type: typeOf(root, own), required: required.includes(name), below });
    }
  }
  return [...found.values()];
}

function valuesIn(schema: Schema): readonly string[] {
  const words = [schema["const"], ...(Array.isArray(schema["enum"]) ? (schema["enum"] as unknown[]) : [])];
  const told = words.filter((word) => typeof word === "string" || typeof word === "number" || typeof word === "boolean").map(String);
  if (told.length > 0) return told;
  return schema["type"] === "boolean" ? ["true", "false"] : [];
}

/** Words that a value at a path may be. */
export function valuesAt(root: Schema, path: Path): readonly string[] {
  const { all, described } = schemasAt(root, path);
  const known = described?.["default"];
  const usual = typeof known === "string" || typeof known === "number" || typeof known === "boolean" ? [String(known)] : [];
  return [...new Set([...all.flatMap(valuesIn), ...usual])].filter((word) => word !== "");
}

/** What is said of the value at a path. */
export function aboutAt(root: Schema, path: Path): { readonly about: string; readonly type: string } | null {
  const { described } = schemasAt(root, path);
  const about = text(described?.["description"]);
  return described && about ? { about, type: typeOf(root, described) } : null;
}

const KINDS: Readonly<Record<string, string>> = {
  ml_task: "ml_tasks",
  model: "models",
  dataset: "datasets",
  prompt: "prompts",
  prompts: "prompts",
  models: "models",
  datasets: "datasets",
  metrics: "metrics",
  default_metrics: "metrics",
  reports: "reports",
  run_tasks: "run_tasks",
  gate: "gates",
  site: "sites",
  image: "images",
  package: "packages",
  packages: "packages",
  required_packages: "packages",
};

/** The kind of definitions whose names belong at a path; null: none. */
export function namesAt(path: Path): string | null {
  const [key, before] = [...path].filter((part) => typeof part === "string").reverse();
  if (key === "name" && before === "model") return "models";
  return KINDS[key ?? ""] ?? null;
}
