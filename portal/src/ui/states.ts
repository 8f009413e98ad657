import type { IconName } from "./Icon";

export type Tone = "good" | "bad" | "warn" | "info" | "away";

export interface Look {
  readonly tone: Tone;
  readonly icon: IconName;
  /** For people. */
  readonly word: string;
  /** What it means. */
  readonly means: string;
}

function look(tone: Tone, icon: IconName, word: string, means: string): Look {
  return { tone, icon, word, means };
}

/** Every state there is: of experiments, run tasks, shards, requests, jobs, verdicts. Never colour alone. */
const LOOKS: Readonly<Record<string, Look>> = {
  submitting: look("info", "export", "submitting", "hpcbench is submitting the jobs."),
  interrupted: look("warn", "warning", "interrupted", "The submission was interrupted; `hpcbench resume` continues it."),
  pending: look("away", "clock", "pending", "Waits for its turn."),
  running: look("info", "play", "running", "Answers come in."),
  paused: look("warn", "pause", "paused", "Paused until `hpcbench resume`."),
  evaluating: look("info", "half", "evaluating", "All answers are there; hpcbench scores them."),
  stalled: look("warn", "warning", "stalled", "The next step needs a command on the login node: `hpcbench status`."),
  done: look("good", "check", "done", "All is done."),
  incomplete: look("bad", "half", "incomplete", "Ended with work left, or with too few ok samples."),
  cancelled: look("away", "stop", "cancelled", "A user cancelled it."),
  lost: look("bad", "question", "lost", "No job is left, and no job recorded the end."),
  unreadable: look("bad", "warning", "unreadable", "Its files cannot be read."),
  stopped: look("warn", "stop", "stopped", "hpcbench stopped it and recorded the reason."),
  failed: look("bad", "cross", "failed", "Ended, and nothing was scored."),
  unserved: look("bad", "cross", "ended", "Its job ended before the model was ready."),
  claimed: look("info", "clock", "claimed", "A worker has claimed it; no answer yet."),
  acknowledged: look("away", "half", "partly done", "Part of it is answered; no worker has claimed the rest."),
  silent: look("warn", "question", "silent", "Its job runs, but its worker sent no message for minutes."),
  starting: look("info", "clock", "starting", "The worker starts."),
  loading: look("info", "clock", "loading", "A model is being loaded."),
  working: look("info", "play", "working", "Sends requests to its model."),
  idle: look("away", "dash", "idle", "Has nothing to do."),
  ok: look("good", "check", "ok", "The answer was read."),
  right: look("good", "check", "right", "The best score."),
  wrong: look("bad", "cross", "wrong", "Not the best score."),
  error: look("bad", "cross", "error", "There is no answer."),
  better: look("good", "up", "better", "Better than the baseline, beyond chance."),
  worse: look("bad", "down", "worse", "Worse than the baseline, beyond chance."),
  equivalent: look("away", "dash", "equivalent", "The whole interval is within the margin."),
  inconclusive: look("warn", "question", "inconclusive", "Too few samples for a verdict."),
  GO: look("good", "check", "GO", "The candidate passes the gate."),
  "NO-GO": look("bad", "cross", "NO-GO", "The candidate fails the gate."),
  INCONCLUSIVE: look("warn", "question", "INCONCLUSIVE", "The gate cannot decide."),
};

/** How a state looks; one that is not known looks like nothing special, with its own word. */
export function lookOf(state: string): Look {
  return LOOKS[state] ?? look("away", "dot", state, "");
}

/** How requests ended. Their words are not those of the counts: an answered request may be unreadable. */
const OUTCOME_LOOKS: Readonly<Record<string, Look>> = {
  ok: look("good", "check", "answered", "The engine answered."),
  truncated: look("warn", "half", "answered, cut", "The answer was cut at max_tokens."),
  refused: look("bad", "cross", "refused", "The engine refused to answer."),
  invalid: look("bad", "question", "bad request", "The engine cannot process the request, for example because of a broken image."),
  failed: look("bad", "cross", "failed", "No answer came after all attempts."),
  missing: look("away", "dash", "not asked", "The sample was not sent to the model."),
};

/** How the outcome of a request looks. */
export function outcomeLook(outcome: string): Look {
  return OUTCOME_LOOKS[outcome] ?? look("away", "dot", outcome, "");
}
