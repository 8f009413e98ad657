import { type SearchOf, searchOf, text } from "../../app/search";

/** Whose samples are listed. */
export const search = searchOf({
  /** The run task; empty: the first one. */
  task: text(),
});

export type Search = SearchOf<typeof search>;
