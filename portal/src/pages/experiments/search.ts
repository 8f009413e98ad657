import { choice, type Field, list, searchOf, text, type SearchOf } from "../../app/search";

const SORTS = ["id", "plan", "state", "created", "updated", "owner", "run_tasks", "samples", "answered", "progress", "rate", "score", "gpu_hours", "failures", "verdict"] as const;

const sortBy: Field<string> = {
  fallback: "created",
  read: (value) => {
    const by = text().read(value);
    return (SORTS as readonly string[]).includes(by) || /^[^:]+:[^:]+$/.test(by) ? by : "created";
  },
};

export const search = searchOf({
  text: text(),
  state: list(),
  model: list(),
  dataset: list(),
  plan: list(),
  /** One of `SORTS`, or `DATASET:METRIC`. */
  sort: sortBy,
  order: choice(["asc", "desc"], "desc"),
  columns: list(),
  /** Experiments that are ticked, in the order of ticking: the first one is the baseline of a comparison. */
  picked: list(),
});
export type Search = SearchOf<typeof search>;

/** Parts of the search that filter. */
export const FILTERS = ["state", "model", "dataset", "plan"] as const;

/** What is asked of the API. */
export function queryOf({ text: words, state, model, dataset, plan }: Search) {
  return { text: words, state, model, dataset, plan };
}
