import type { DefinitionRow } from "../../api/schema";

export type DefinitionKind = DefinitionRow["kind"];

/** Kinds of definitions, for people; in the order of lists. */
export const KINDS: Readonly<Record<DefinitionKind, string>> = {
  plans: "Plans",
  run_tasks: "Run tasks",
  models: "Models",
  datasets: "Datasets",
  prompts: "Prompts",
  metrics: "Metrics",
  ml_tasks: "ML tasks",
  gates: "Gates",
  reports: "Reports",
  images: "Images",
  packages: "Packages",
  sites: "Sites",
};

/** One of a kind, for people. */
export const ONE: Readonly<Record<DefinitionKind, string>> = {
  plans: "plan",
  run_tasks: "run task",
  models: "model",
  datasets: "dataset",
  prompts: "prompt",
  metrics: "metric",
  ml_tasks: "ML task",
  gates: "gate",
  reports: "report",
  images: "image",
  packages: "package",
  sites: "site profile",
};

/** A kind by its name in a URL. */
export function kindOf(text: string): DefinitionKind {
  return (Object.keys(KINDS) as DefinitionKind[]).find((kind) => kind === text) ?? "plans";
}
