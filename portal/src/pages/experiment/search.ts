import { choice, list, searchOf, text, type SearchOf } from "../../app/search";
import { LOG_SEARCH } from "../../parts/log-search";

export const TABS = ["tasks", "summary", "charts", "resources", "logs", "config", "provenance", "report"] as const;
export type Tab = (typeof TABS)[number];

/** Columns that the server sorts run tasks by. */
export const SORTS = [
  "name", "state", "progress", "score", "coverage", "invalid", "latency_p50", "latency_p95", "tokens_per_second",
  "peak_memory_gb", "rate", "model", "dataset", "prompt", "ml_task",
] as const;
export type TaskSort = (typeof SORTS)[number];

export const search = searchOf({
  tab: choice(TABS, "tasks"),
  // Tasks: the matrix shown, filters and order of the table.
  ml_task: text(),
  text: text(),
  state: list(),
  model: list(),
  dataset: list(),
  sort: choice(SORTS, "name"),
  order: choice(["asc", "desc"], "asc"),
  columns: list(),
  // Charts.
  group: text(),
  // Resources and logs.
  ...LOG_SEARCH,
  // Configuration.
  baseline: text(),
});
export type Search = SearchOf<typeof search>;
