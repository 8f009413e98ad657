import { choice, flag, type SearchOf, searchOf, text } from "../../app/search";

/** The shown trends, and the selected one. */
export const search = searchOf({
  plan: text(),
  /** Metric or figure; empty: all metrics of quality. */
  name: text(),
  /** In plan, run task, model or figure. */
  text: text(),
  /** Days back. */
  since: choice(["30", "90", "365", "all"], "90"),
  /** Only rows at a worse level without an acknowledgement. */
  fell: flag(),
  /** Acknowledged ones, too. */
  muted: flag(true),
  /** The selected trend. */
  row: text(),
  /** And the change of it. */
  change: text(),
});

export type Search = SearchOf<typeof search>;
