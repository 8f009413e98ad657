import { choice, number, searchOf, type SearchOf, text } from "../../app/search";

export const TABS = ["problems", "tasks", "estimate", "commands", "changes"] as const;
export type PlanTab = (typeof TABS)[number];

export const SIDES = ["form", "sections"] as const;
export type Side = (typeof SIDES)[number];

export const search = searchOf({
  /** What is shown beside the text of a plan. */
  side: choice(SIDES, "form"),
  /** What is shown below the text. */
  tab: choice(TABS, "problems"),
  /** Line to go to. */
  line: number(),
  /** Of a new definition: its kind, the starter or definition it begins with, and the name it is to have. */
  kind: text("plans"),
  starter: text(),
  from: text(),
  name: text(),
  /** Submission whose log is shown. */
  submission: text(),
});
export type Search = SearchOf<typeof search>;
