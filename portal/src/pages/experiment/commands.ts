import type { ActionAsked, CommandLine, ExperimentRow } from "../../api/schema";

/** States that no job will change. */
const ENDED: readonly string[] = ["done", "incomplete", "failed", "cancelled", "lost", "interrupted"];

type Row = Pick<ExperimentRow, "id" | "state">;

/** A verb of hpcbench that the portal can run for an experiment. */
export type Action = ActionAsked["action"];

interface About {
  /** The name of the action. */
  readonly word: string;
  /** Its title in a list of commands. */
  readonly title: string;
  readonly effect: string;
  readonly command: (id: string) => string;
}

export const ACTIONS: Readonly<Record<Action, About>> = {
  pause: { word: "Pause", title: "Pause; answers are kept", effect: "Its workers stop after the answers in flight. Answers are kept, and Resume continues.", command: (id) => `hpcbench pause ${id}` },
  resume: { word: "Resume", title: "Resume", effect: "Submits jobs for all samples that have no answer yet.", command: (id) => `hpcbench resume ${id}` },
  cancel: { word: "Cancel jobs", title: "Cancel its jobs", effect: "Ends its jobs. Answers are kept, and Resume continues.", command: (id) => `hpcbench cancel ${id}` },
  score: { word: "Score again", title: "Score its answers again", effect: "Computes scores and reports again from the recorded answers; no model is asked.", command: (id) => `hpcbench score ${id}` },
};

/** Actions that an experiment's state allows. */
export function actionsOf({ state }: Row): Action[] {
  const ended = ENDED.includes(state);
  const found: Action[] = [];
  if (!ended && state !== "paused") found.push("pause");
  if (state === "paused" || (ended && state !== "done")) found.push("resume");
  if (!ended) found.push("cancel");
  if (ended && state !== "interrupted") found.push("score");
  return found;
}

/** Commands to copy for an experiment in its state. Ids need no quoting. */
export function commandsOf(row: Row): CommandLine[] {
  const ended = ENDED.includes(row.state);
  const line = (title: string, text: string) => ({ title, text });
  const found = [line("Status", `hpcbench status ${row.id}`)];
  if (!ended) found.push(line("Watch until the end", `hpcbench watch ${row.id}`));
  found.push(...actionsOf(row).map((action) => line(ACTIONS[action].title, ACTIONS[action].command(row.id))));
  if (ended && row.state !== "interrupted") found.push(line("Write the report again", `hpcbench report ${row.id} --format html`), line("Compare with another run", `hpcbench compare BASELINE ${row.id}`));
  return found;
}
