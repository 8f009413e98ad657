import { Link } from "@tanstack/react-router";
import type { RunTaskDetail, RunTaskRow } from "../../api/schema";
import { type Fact, Facts } from "../../parts/Facts";
import { SpeedFigure } from "../../parts/SpeedFigure";
import { Bar, Coded, Icon, ScoreText, StateChip } from "../../ui";
import { countsSentence, DEFINITIONS, samplesDone } from "../../ui/counts";
import { count, counted, duration, number, percent } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./run-task.module.css";

/** The run task, its state, its main figures, and the links to its samples. */
export function Header({ detail }: { readonly detail: RunTaskDetail }) {
  const { row, engine } = detail;
  const params = { experiment: row.experiment, task: row.name };
  return (
    <header className={styles.header}>
      <div className={layout.bar}>
        <div className={styles.names}>
          <h1 className={layout.wrap}>{row.name}</h1>
          <StateChip state={row.state} />
        </div>
        <div className={layout.row}>
          <Link className={styles.way} to="/e/$experiment/t/$task/samples" params={params} search={row.scores.length > 0 ? { wrong: true } : {}}>
            <Icon name="search" size={14} /> {row.scores.length > 0 ? "Show wrong samples" : "Show the answers"}
          </Link>
          {row.scores.length > 0 && (
            <Link className={styles.way} to="/e/$experiment/t/$task/samples" params={params}>
              All samples
            </Link>
          )}
        </div>
      </div>
      {row.reason && (
        <p className={styles.reason}>
          <Icon name="warning" size={14} /> <span><Coded text={row.reason} /></span>
        </p>
      )}
      <dl className={styles.about}>
        <About name="Model" value={row.model} />
        <About name="Dataset" value={row.dataset} />
        <About name="Prompt" value={row.prompt} />
        <About name="ML task" value={row.ml_task} />
        <About name="Engine" value={engine} />
      </dl>
      <Facts label="At a glance" facts={factsOf(row)} />
      {detail.taken.length > 0 && <Taken taken={detail.taken} />}
    </header>
  );
}

/** Earlier experiments named in one line. */
const NAMED = 3;

/** The earlier experiments that gave answers. */
function Taken({ taken }: { readonly taken: RunTaskDetail["taken"] }) {
  const left = taken.length - NAMED;
  return (
    <p className={styles.dim} data-testid="taken">
      {counted(taken.reduce((sum, one) => sum + one.answers, 0), "answer")} of earlier experiments, which no figure of speed counts:{" "}
      {taken.slice(0, NAMED).map((one, at) => (
        <span key={one.experiment}>
          {at > 0 && ", "}
          {one.here ? (
            <Link to="/e/$experiment" params={{ experiment: one.experiment }}>
              {one.experiment}
            </Link>
          ) : (
            one.experiment
          )}{" "}
          ({count(one.answers)})
        </span>
      ))}
      {left > 0 && `, and ${count(left)} more`}
    </p>
  );
}

function About({ name, value }: { readonly name: string; readonly value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function factsOf(row: RunTaskRow): (Fact | null)[] {
  const [score] = row.scores;
  const doubt = row.speed_valid ? "" : "; not valid";
  const going = row.answered < row.samples && row.state === "running";
  const left = going && row.rate ? (row.samples - row.answered) / row.rate : null;
  return [
    {
      label: "Samples",
      value: <Bar value={row.answered} max={row.samples} label="Samples done" />,
      note: row.counts ? countsSentence(row.counts) : samplesDone(row),
      wide: true,
    },
    score ? { label: score.metric, value: <ScoreText score={score} interval />, note: `n = ${count(score.n)}${score.documents ? ` from ${counted(score.documents, "document")}` : ""}`, wide: true } : null,
    going || typeof row.rate === "number" ? { label: "Answers / s", value: number(row.rate), note: left === null ? "over the last minutes" : `at this rate ${duration(left)} left` } : null,
    typeof row.coverage === "number" ? { label: "Coverage", value: percent(row.coverage, 1), note: DEFINITIONS.coverage } : null,
    typeof row.latency_p50 === "number" ? { label: "Latency", value: <SpeedFigure text={duration(row.latency_p50)} valid={row.speed_valid} />, note: `p50; p95 ${duration(row.latency_p95)}${doubt}` } : null,
    typeof row.tokens_per_second === "number" ? { label: "Output tokens", value: <SpeedFigure text={`${number(row.tokens_per_second)} /s`} valid={row.speed_valid} />, note: `of one engine, steady${doubt}` } : null,
    typeof row.peak_memory_gb === "number" ? { label: "GPU memory", value: `${number(row.peak_memory_gb)} GiB`, note: "at its peak" } : null,
  ];
}
