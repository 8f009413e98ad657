import { searchOf, type SearchOf } from "../../app/search";

export const search = searchOf({});
export type Search = SearchOf<typeof search>;
