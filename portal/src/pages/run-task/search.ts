import { choice, flag, number, searchOf, text, type SearchOf } from "../../app/search";
import { LOG_SEARCH } from "../../parts/log-search";

export const TABS = ["overview", "charts", "groups", "resources", "logs", "commands"] as const;
export type Tab = (typeof TABS)[number];

export const search = searchOf({
  tab: choice(TABS, "overview"),
  // Dataset objects: the selected one, and whether as a table.
  object: number(),
  table: flag(),
  // Charts.
  group: text(),
  // Groups: the level shown.
  by: text(),
  // Resources and logs.
  ...LOG_SEARCH,
});
export type Search = SearchOf<typeof search>;
