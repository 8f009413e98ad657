import type { CommandLine, ExperimentRow } from "../../api/schema";

/** States that no job will change. */
const ENDED: readonly string[] = ["done", "incomplete", "failed", "cancelled", "lost", "interrupted"];

/** What can be done with an experiment in its state, as commands to copy. Ids need no quoting. */
export function commandsOf(row: Pick<ExperimentRow, "id" | "state">): CommandLine[] {
  const ended = ENDED.includes(row.state);
  const line = (title: string, text: string) => ({ title, text });
  const found = [line("Status", `hpcbench status ${row.id}`)];
  if (!ended) found.push(line("Watch until the end", `hpcbench watch ${row.id}`));
  if (!ended && row.state !== "paused") found.push(line("Pause; answers are kept", `hpcbench pause ${row.id}`));
  if (row.state === "paused" || (ended && row.state !== "done")) found.push(line("Resume", `hpcbench resume ${row.id}`));
  if (!ended) found.push(line("Cancel its jobs", `hpcbench cancel ${row.id}`));
  if (ended && row.state !== "interrupted") found.push(line("Write the report again", `hpcbench report ${row.id} --format html`), line("Compare with another run", `hpcbench compare BASELINE ${row.id}`));
  return found;
}
