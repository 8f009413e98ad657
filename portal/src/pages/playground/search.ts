import { searchOf, type SearchOf, text } from "../../app/search";

export const search = searchOf({
  /** Served model that is asked. */
  served: text(),
});
export type Search = SearchOf<typeof search>;
