import { Link } from "@tanstack/react-router";
import type { ExperimentRow, ScoreColumn } from "../../api/schema";
import { Ago, Bar, type Column, Cut, lookOf, ScoreChange, ScoreText, Spark, StateChip } from "../../ui";
import { samplesDone } from "../../ui/counts";
import { count, counted, number } from "../../ui/format";
import { Names } from "./Names";
import styles from "./experiments.module.css";

/** Run tasks of an experiment by state, for its bar; those done come first. */
export function partsOf(row: ExperimentRow) {
  const order = ["good", "info", "warn", "bad", "away"];
  return Object.entries(row.tasks_by_state)
    .map(([state, amount]) => ({ state, count: amount }))
    .sort((a, b) => order.indexOf(lookOf(a.state).tone) - order.indexOf(lookOf(b.state).tone));
}

function Name({ row }: { readonly row: ExperimentRow }) {
  return (
    <Link to="/e/$experiment" params={{ experiment: row.id }} className={styles.name}>
      <Cut text={row.id} />
    </Link>
  );
}

function Progress({ row }: { readonly row: ExperimentRow }) {
  const moving = row.answered < row.samples;
  return (
    <span className={styles.progress} title={samplesDone(row)}>
      <Bar value={row.answered} max={row.samples} label={`Samples of ${row.id} done`} {...(moving ? {} : { parts: partsOf(row) })} />
    </span>
  );
}

/** Columns of scores that are shown until columns are chosen: those that most experiments have. */
const FIRST = 3;

const SCORE = "score:";

/** Pixels of a trend. */
const TREND = 44;

/** What the list of experiments can show; columns of scores stand behind its progress. */
export function columnsOf(scores: readonly ScoreColumn[]): readonly Column<ExperimentRow>[] {
  if (scores.length === 0) return COLUMNS;
  const found = scores.map((score, place) => scoreColumn(score, place >= FIRST));
  return COLUMNS.flatMap((column) => {
    if (column.id === "progress") return [column, ...found];
    return column.id === "score" || column.id === "trend" ? [{ ...column, optional: true }] : [column];
  });
}

/** Columns of scores among those shown, as the API names them. */
export function scoresIn(shown: readonly Column<ExperimentRow>[]): readonly string[] {
  return shown.filter(({ id }) => id.startsWith(SCORE)).map(({ id }) => id.slice(SCORE.length));
}

function scoreColumn({ dataset, metric, higher_is_better: up }: ScoreColumn, optional: boolean): Column<ExperimentRow> {
  const key = `${dataset}:${metric}`;
  return {
    id: SCORE + key,
    head: `${metric} ${up ? "↑" : "↓"} ${dataset}`,
    width: 264,
    align: "end",
    sort: key,
    first: up ? "desc" : "asc",
    title: `${metric} on ${dataset}, ${up ? "higher" : "lower"} is better: value, 95 % interval, difference to the plan's newest baseline, last ten experiments of the plan`,
    optional,
    cell: (row) => {
      const score = row.scores.find((one) => one.dataset === dataset && one.metric === metric);
      if (!score) return <ScoreText score={null} />;
      return (
        <span className={styles.scored}>
          <ScoreText score={score} interval />
          <span className={styles.change}>{typeof score.change === "number" && <ScoreChange score={score} change={score.change} />}</span>
          <span className={styles.trend}>{score.trend.length > 1 && <Spark values={score.trend} label={`Last ${score.trend.length} of ${row.plan}, ${metric} on ${dataset}`} width={TREND} />}</span>
        </span>
      );
    },
  };
}

const COLUMNS: readonly Column<ExperimentRow>[] = [
  { id: "id", head: "Experiment", width: 300, grow: true, sort: "id", cell: (row) => <Name row={row} /> },
  { id: "state", head: "State", width: 118, sort: "state", cell: (row) => <StateChip state={row.state} /> },
  { id: "progress", head: "Progress", width: 136, sort: "progress", first: "desc", cell: (row) => <Progress row={row} /> },
  {
    id: "score",
    head: "Score",
    width: 168,
    align: "end",
    sort: "score",
    title: "First metric, where its run tasks share one; with its 95 % interval",
    cell: (row) => <ScoreText score={row.score} interval />,
  },
  {
    id: "trend",
    head: "Last ten",
    width: 98,
    title: "First metric of the last ten experiments of the same plan",
    cell: (row) => (row.trend.length > 1 ? <Spark values={row.trend} label={`Last ${row.trend.length} of ${row.plan}`} /> : null),
  },
  { id: "models", head: "Models", width: 140, cell: (row) => <Names names={row.models} /> },
  { id: "datasets", head: "Datasets", width: 130, cell: (row) => <Names names={row.datasets} /> },
  { id: "verdict", head: "Gate", width: 128, sort: "verdict", cell: (row) => (row.verdict ? <StateChip state={row.verdict} quiet /> : null) },
  { id: "failures", head: "Failures", width: 92, align: "end", sort: "failures", title: "Causes of failures", cell: (row) => <Failures row={row} /> },
  { id: "gpu_hours", head: "GPU-hours", width: 100, align: "end", sort: "gpu_hours", cell: (row) => number(row.gpu_hours) },
  { id: "created", head: "Submitted", width: 108, align: "end", sort: "created", cell: (row) => <Ago time={row.created} /> },
  { id: "plan", head: "Plan", width: 150, sort: "plan", optional: true, cell: (row) => row.plan },
  { id: "owner", head: "Owner", width: 100, sort: "owner", optional: true, cell: (row) => row.owner },
  { id: "baselines", head: "Baseline of", width: 130, optional: true, cell: (row) => <Names names={row.baselines} /> },
  { id: "run_tasks", head: "Run tasks", width: 96, align: "end", sort: "run_tasks", optional: true, cell: (row) => count(row.run_tasks) },
  { id: "samples", head: "Samples", width: 100, align: "end", sort: "samples", optional: true, cell: (row) => count(row.samples) },
  { id: "rate", head: "Answers a second", width: 130, align: "end", sort: "rate", optional: true, cell: (row) => number(row.rate) },
  { id: "updated", head: "Changed", width: 108, align: "end", sort: "updated", optional: true, cell: (row) => <Ago time={row.updated} /> },
];

function Failures({ row }: { readonly row: ExperimentRow }) {
  if (row.failures === 0) return <span className={styles.none}>0</span>;
  return (
    <Link to="/e/$experiment" params={{ experiment: row.id }} className={styles.failures} title={counted(row.failures, "cause of failures", "causes of failures")}>
      {count(row.failures)}
    </Link>
  );
}
