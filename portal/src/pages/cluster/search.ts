import { flag, searchOf, type SearchOf, text } from "../../app/search";

export const search = searchOf({
  /** Partition whose nodes are shown; empty: all. */
  partition: text(),
  /** Only nodes with a free GPU. */
  free: flag(),
});
export type Search = SearchOf<typeof search>;
