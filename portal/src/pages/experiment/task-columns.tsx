import { Link } from "@tanstack/react-router";
import type { RunTaskRow } from "../../api/schema";
import { SpeedFigure } from "../../parts/SpeedFigure";
import { Bar, type Column, ScoreText, StateChip } from "../../ui";
import { DEFINITIONS } from "../../ui/counts";
import { count, duration, number, percent } from "../../ui/format";
import styles from "./experiment.module.css";

/** Columns of the table of run tasks. */
export const COLUMNS: readonly Column<RunTaskRow>[] = [
  {
    id: "name",
    head: "Run task",
    width: 220,
    grow: true,
    sort: "name",
    cell: (row) => (
      <Link className={styles.task} to="/e/$experiment/t/$task" params={{ experiment: row.experiment, task: row.name }} title={row.name}>
        {row.name}
      </Link>
    ),
  },
  { id: "state", head: "State", width: 116, sort: "state", cell: (row) => <span title={row.reason ?? undefined}><StateChip state={row.state} /></span> },
  { id: "answered", head: "Samples", width: 150, sort: "progress", cell: (row) => <Bar value={row.answered} max={row.samples} label={`Samples of ${row.name} done`} /> },
  { id: "score", head: "Score", width: 250, sort: "score", first: "desc", cell: (row) => <Leading row={row} /> },
  { id: "coverage", head: "Coverage", width: 92, align: "end", sort: "coverage", title: DEFINITIONS.coverage, cell: (row) => percent(row.coverage, 1) },
  { id: "invalid", head: "Unreadable", width: 104, align: "end", sort: "invalid", first: "desc", title: DEFINITIONS.unreadable, cell: (row) => count(row.counts?.unreadable) },
  { id: "failed", head: "Failed", width: 80, align: "end", title: DEFINITIONS.failed, cell: (row) => count(row.counts?.failed) },
  { id: "latency_p50", head: "Latency p50", width: 116, align: "end", sort: "latency_p50", cell: (row) => <SpeedFigure text={duration(row.latency_p50)} valid={row.speed_valid} /> },
  { id: "latency_p95", head: "p95", width: 92, align: "end", sort: "latency_p95", cell: (row) => <SpeedFigure text={duration(row.latency_p95)} valid={row.speed_valid} /> },
  { id: "tokens", head: "Tokens/s", width: 92, align: "end", sort: "tokens_per_second", first: "desc", title: "Output tokens a second of one engine", cell: (row) => <SpeedFigure text={number(row.tokens_per_second)} valid={row.speed_valid} /> },
  { id: "memory", head: "GPU memory", width: 96, align: "end", sort: "peak_memory_gb", first: "desc", cell: (row) => (typeof row.peak_memory_gb === "number" ? `${number(row.peak_memory_gb)} GiB` : "–") },
  { id: "rate", head: "Answers/s", width: 96, align: "end", sort: "rate", first: "desc", optional: true, cell: (row) => number(row.rate) },
  { id: "model", head: "Model", width: 170, sort: "model", optional: true, cell: (row) => <span title={row.model}>{row.model}</span> },
  { id: "dataset", head: "Dataset", width: 170, sort: "dataset", optional: true, cell: (row) => <span title={row.dataset}>{row.dataset}</span> },
  { id: "prompt", head: "Prompt", width: 150, sort: "prompt", optional: true, cell: (row) => <span title={row.prompt}>{row.prompt}</span> },
  { id: "ml_task", head: "ML task", width: 120, sort: "ml_task", optional: true, cell: (row) => row.ml_task },
];

function Leading({ row }: { readonly row: RunTaskRow }) {
  const score = row.scores[0];
  if (!score) return <span className={styles.dim}>–</span>;
  return (
    <span className={styles.leading}>
      <ScoreText score={score} interval />
      <span className={styles.dim}>{score.metric}</span>
    </span>
  );
}
