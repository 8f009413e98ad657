import { useState } from "react";

import { apiUrl, useApi } from "../../api";
import type { PlanStep, SampleTurn, SampleTurns, TurnCall } from "../../api/schema";
import { Button } from "../../ui";
import { count, counted, duration } from "../../ui/format";
import { Part } from "./Part";
import { Picture } from "./Picture";
import styles from "./Turns.module.css";
import { FRESH } from "./useAhead";

interface Props {
  readonly experiment: string;
  readonly task: string;
  readonly place: number;
}

/** What an agent did on a sample: its plan, and each turn with its calls, their results and images. */
export function Turns({ experiment, task, place }: Props) {
  const path = { experiment, run_task: task, place };
  const found = useApi("/experiments/{experiment}/run-tasks/{run_task}/samples/{place}/turns", { path }, { fresh: FRESH });
  if (found.data === undefined) {
    return (
      <Part title="Turns">
        <p className={styles["soft"]}>{found.error ? found.error.message : "loading …"}</p>
      </Part>
    );
  }
  return <Shown work={found.data} />;
}

function Shown({ work }: { readonly work: SampleTurns }) {
  const { turns, plan } = work;
  const calls = turns.reduce((sum, turn) => sum + turn.calls.length, 0);
  const facts = [
    counted(turns.length, "turn"),
    counted(calls, "call"),
    work.wasted ? `${count(work.wasted)} wasted` : "",
    `model ${duration(work.think_seconds)}`,
    `tools ${duration(work.tool_seconds)}`,
    work.sync_seconds === null ? "" : `disk ${duration(work.sync_seconds)}`,
  ].filter(Boolean);
  return (
    <>
      {plan.length > 0 && <Plan steps={plan} />}
      <Part title="Turns">
        <p className={styles["soft"]} data-testid="turns-facts">
          {facts.join(" · ")}
        </p>
        <ol className={styles["turns"]} data-testid="turns">
          {turns.map((turn) => (
            <li key={turn.number} className={styles["turn"]}>
              <Turn turn={turn} />
            </li>
          ))}
        </ol>
        {work.left_out > 0 && <p className={styles["soft"]}>{counted(work.left_out, "turn is", "turns are")} too large to show, or cannot be read.</p>}
        <p className={styles["end"]} data-exit={work.exit ?? "running"} data-testid="exit">
          <strong>{work.exit === null ? "not ended" : work.exit}</strong>
          {work.why && <span>{work.why}</span>}
        </p>
      </Part>
    </>
  );
}

/** Words for how far a step is. */
const STATUS: Readonly<Record<PlanStep["status"], string>> = { pending: "to do", in_progress: "in progress", done: "done", skipped: "skipped" };

function Plan({ steps }: { readonly steps: readonly PlanStep[] }) {
  const done = steps.filter((step) => step.status === "done").length;
  return (
    <Part title={`Plan, ${done} of ${counted(steps.length, "step")} done`}>
      <ol className={styles["plan"]} data-testid="plan">
        {steps.map((step, at) => (
          <li key={at} className={styles["step"]}>
            <span className={styles["status"]} data-status={step.status}>
              {STATUS[step.status]}
            </span>
            <span>{step.text}</span>
          </li>
        ))}
      </ol>
    </Part>
  );
}

function Turn({ turn }: { readonly turn: SampleTurn }) {
  const facts = [
    `after ${duration(turn.begin)}`,
    `model ${duration(turn.seconds)}`,
    turn.ttft === null ? "" : `first token ${duration(turn.ttft)}`,
    turn.prompt_tokens === null ? "" : counted(turn.prompt_tokens, "prompt token"),
    turn.completion_tokens === null ? "" : counted(turn.completion_tokens, "token"),
  ].filter(Boolean);
  return (
    <>
      <p className={styles["head"]}>
        <strong>
          {turn.number}
          {turn.agent && `, ${turn.agent}`}
        </strong>
        <span className={styles["soft"]}>{facts.join(" · ")}</span>
      </p>
      {turn.reasoning && <Words text={turn.reasoning} label="reasoning" />}
      {turn.text && <Words text={turn.text} />}
      {turn.outcome !== "ok" && <p className={styles["bad"]}>{turn.outcome}</p>}
      {turn.calls.length > 0 && (
        <ul className={styles["calls"]}>
          {turn.calls.map((call, at) => (
            <li key={at} className={styles["call"]}>
              <Call call={call} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Call({ call }: { readonly call: TurnCall }) {
  const bad = call.kind !== null && call.kind !== "ok";
  return (
    <>
      <p className={styles["head"]}>
        <strong>{call.tool || "no tool"}</strong>
        <code className={styles["arguments"]}>{call.arguments}</code>
        {call.seconds !== null && <span className={styles["soft"]}>{duration(call.seconds)}</span>}
        {bad && <span className={styles["bad"]}>{call.kind}</span>}
        {call.kind === null && <span className={styles["bad"]}>not made</span>}
      </p>
      {call.text && <Words text={call.text} label={bad ? undefined : "result"} />}
      {call.images.length > 0 && (
        <ul className={styles["images"]}>
          {call.images.map((image, at) => (
            <li key={image}>
              <Made image={image} number={call.numbers[at] ?? 0} tool={call.tool} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** An image that a tool made, small; whole in the place of the small one, when pressed. */
function Made({ image, number, tool }: { readonly image: string; readonly number: number; readonly tool: string }) {
  const [whole, setWhole] = useState(false);
  const name = `Image ${number}, made by ${tool}`;
  return (
    <button type="button" className={styles["made"]} aria-expanded={whole} aria-label={`${name}: ${whole ? "smaller" : "larger"}`} onClick={() => setWhole(!whole)}>
      <Picture place={apiUrl(`${image}?size=${whole ? "full" : "thumb"}`)} alt={name} decoding="async" data-whole={whole} />
      <span className={styles["soft"]}>image {number}</span>
    </button>
  );
}

/** Characters shown of a text at first. */
const SOME = 1200;

function Words({ text, label }: { readonly text: string; readonly label?: string | undefined }) {
  const [whole, setWhole] = useState(false);
  const long = text.length > SOME && !whole;
  return (
    <>
      <p className={styles["text"]}>
        {label && <span className={styles["label"]}>{label} </span>}
        {long ? `${text.slice(0, SOME)} …` : text}
      </p>
      {long && (
        <Button small onClick={() => setWhole(true)}>
          All {counted(text.length, "character")}
        </Button>
      )}
    </>
  );
}
