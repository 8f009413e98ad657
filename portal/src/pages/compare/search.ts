import { choice, flag, list, number, type SearchOf, searchOf, text } from "../../app/search";

/** Which runs are compared, and what of it is looked at. */
export const search = searchOf({
  /** Experiments, or run tasks of them; the first is the baseline. */
  runs: list(),
  /** The metric shown; empty: all. */
  metric: text(),
  /** Compare what both have asked where they have not asked the same. */
  common: flag(),
  /** Candidate looked at, from 0. */
  candidate: number(0),
  tab: choice(["scores", "speed", "config", "charts"], "scores"),
  /** Rows without any difference, too. */
  all: flag(),
  /** Pair of run tasks whose samples are listed, and the metric they are listed by. */
  task: text(),
  other: text(),
  by: text(),
  change: choice(["lost", "won", "both_wrong", "both_partly", "both_right"], "lost"),
});

export type Search = SearchOf<typeof search>;
export type Change = Search["change"];
