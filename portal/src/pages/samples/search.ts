import { choice, flag, list, number, type SearchOf, searchOf, text } from "../../app/search";

/** What of a run task's samples is shown, and where one is: a link to exactly this. */
export const search = searchOf({
  /** In prompt, answer, reference or id. */
  text: text(),
  /** How requests ended. */
  outcome: text(),
  /** Why answers cannot be read. */
  reason: text(),
  /** Kind of mistake in wrong answers. */
  mistake: text(),
  /** The metric that scores, `wrong` and the order by score speak of; empty: the first. */
  metric: text(),
  /** Least score. */
  low: number(),
  /** Greatest score. */
  high: number(),
  /** Seconds. */
  latency_over: number(),
  /** `column:value` of the dataset's metadata. */
  where: list(),
  /** Only those without the best score. */
  wrong: flag(),
  /** Only those that the user has flagged. */
  flagged: flag(),
  /** `place`, `latency`, `output_tokens`, or a metric. */
  sort: text("place"),
  order: choice(["asc", "desc"], "asc"),
  /** Place of the sample shown. */
  at: number(),
  /** Number of its image shown, from 0. */
  image: number(0),
  /** What is opened of it. */
  raw: flag(),
  diff: flag(true),
  boxes: flag(true),
});

export type Search = SearchOf<typeof search>;
