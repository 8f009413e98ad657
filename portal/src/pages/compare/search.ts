import { choice, flag, list, number, type SearchOf, searchOf, text } from "../../app/search";

/** The compared runs, and the selected part. */
export const search = searchOf({
  /** Experiments, or run tasks of them; the first is the baseline. */
  runs: list(),
  /** The metric shown; empty: all. */
  metric: text(),
  /** Compare what both have asked where they have not asked the same. */
  common: flag(),
  /** Selected candidate, from 0. */
  candidate: number(0),
  tab: choice(["scores", "speed", "config", "charts"], "scores"),
  /** Rows without any difference, too. */
  all: flag(),
  /** Pair of run tasks whose samples are listed, and the metric they are listed by. */
  task: text(),
  other: text(),
  by: text(),
  change: choice(["lost", "won", "both_wrong", "both_partly", "both_right"], "lost"),
  /** Kind of mistake, and `column:value` of the dataset's metadata, that the listed samples have. */
  mistake: text(),
  where: list(),
  /** Number of the listed sample that is open, from 0, and its image. */
  flip: number(),
  image: number(0),
  boxes: flag(true),
  /** What the answers' words are compared with. */
  against: choice(["reference", "answer"], "reference"),
});

export type Search = SearchOf<typeof search>;
export type Change = Search["change"];

/** The open sample of the list, and its view. */
export type FlipPlace = Pick<Search, "flip" | "image" | "boxes" | "against">;

/** What the listed samples are filtered by, besides their change. */
export type FlipFilter = Pick<Search, "mistake" | "where">;
