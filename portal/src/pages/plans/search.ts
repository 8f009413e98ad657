import { flag, searchOf, type SearchOf, text } from "../../app/search";

export const search = searchOf({
  /** Kind of definitions that are listed. */
  kind: text("plans"),
  /** Words in their names. */
  text: text(),
  /** Only those of the user's own folder. */
  own: flag(),
});
export type Search = SearchOf<typeof search>;
