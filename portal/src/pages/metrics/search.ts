import { type SearchOf, searchOf, text } from "../../app/search";

/** Which values are listed. */
export const search = searchOf({
  /** The metric; empty: the first one that is known. */
  metric: text(),
  /** Words in plan, owner, model, dataset or id. */
  text: text(),
});

export type Search = SearchOf<typeof search>;
