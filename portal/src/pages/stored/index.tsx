import { useApi, usePages } from "../../api";
import type { StoredRunTask, StoredSample } from "../../api/schema";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { Facts } from "../../parts/Facts";
import { type Column, Cut, Empty, FaultBox, Moment, OutcomeChip, ScoreText, Skeleton, StateChip, Table } from "../../ui";
import { number, percent } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./stored.module.css";

/** An experiment of another home, as the database of results has it. */
export default function StoredPage() {
  const { params: { experiment }, search, update } = usePlace("/stored/$experiment"); // prettier-ignore
  const { data: found, error, isPending, refetch } = useApi("/stored/{experiment}", { path: { experiment } }, { fresh: 60_000 });
  const tasks = found?.run_tasks ?? [];
  const task = tasks.find(({ name }) => name === search.task) ?? tasks[0];
  const samples = usePages("/stored/{experiment}/samples", task ? { path: { experiment }, query: { run_task: task.name } } : null);
  usePageTitle(found?.name ?? experiment);
  return (
    <div className={layout.page}>
      <h1>{found?.name ?? experiment}</h1>
      <FaultBox fault={error ?? samples.fault} retry={() => void refetch()} />
      {isPending && <Skeleton lines={8} />}
      {found && (
        <>
          {found.description && <p className={layout.soft}>{found.description}</p>}
          <Facts
            label="Experiment"
            facts={[
              { label: "State", value: <StateChip state={found.status} />, note: found.reason },
              { label: "Owner", value: found.owner, note: found.home },
              { label: "Submitted", value: typeof found.created === "number" ? <Moment time={found.created} /> : "–", note: `by version ${found.hpcbench}` },
              { label: "In the database", value: typeof found.synced === "number" ? <Moment time={found.synced} /> : "not all of its rows", note: "Images and prompts are in its home alone" },
            ]}
          />
          <Table label="Run tasks" rows={tasks} columns={taskColumns(tasks)} rowKey={({ name }) => name} current={task?.name} onOpen={({ name }) => update({ task: name })} height="fit" />
        </>
      )}
      {task && (
        <>
          <h2>Samples of {task.name}</h2>
          <div className={styles.samples}>
            <Table label={`Samples of ${task.name}`} rows={samples.rows} columns={sampleColumns(task)} rowKey={({ sample }) => sample} empty={<Empty title="No samples">The run task was not evaluated, or its rows are still to be sent.</Empty>} />
          </div>
        </>
      )}
    </div>
  );
}

/** A column for each metric that a run task has. */
function taskColumns(tasks: readonly StoredRunTask[]): Column<StoredRunTask>[] {
  const metrics = [...new Set(tasks.flatMap(({ scores }) => scores.map(({ metric }) => metric)))];
  return [
    { id: "name", head: "Run task", width: 200, grow: true, cell: ({ name }) => <Cut text={name} /> },
    { id: "model", head: "Model", width: 160, cell: ({ model }) => <Cut text={model} /> },
    { id: "dataset", head: "Dataset", width: 150, cell: ({ dataset, split }) => <Cut text={split ? `${dataset}/${split}` : dataset} /> },
    { id: "status", head: "State", width: 110, cell: ({ status, reason }) => (status ? <span title={reason}><StateChip state={status} /></span> : "–") },
    { id: "coverage", head: "Coverage", width: 90, align: "end", cell: ({ coverage }) => (typeof coverage === "number" ? percent(coverage) : "–") },
    ...metrics.map((metric): Column<StoredRunTask> => ({ id: `metric ${metric}`, head: metric, width: 170, align: "end", cell: ({ scores }) => <Score one={scores.find((one) => one.metric === metric)} /> })),
  ];
}

function Score({ one }: { readonly one: StoredRunTask["scores"][number] | undefined }) {
  if (typeof one?.value !== "number") return <span title={one?.method}>–</span>;
  return <ScoreText score={{ ...one, value: one.value, standing: "" }} interval />;
}

function sampleColumns({ scores }: StoredRunTask): Column<StoredSample>[] {
  return [
    { id: "sample", head: "Sample", width: 150, cell: ({ sample }) => <Cut text={sample} /> },
    { id: "outcome", head: "Outcome", width: 110, cell: ({ outcome }) => <OutcomeChip outcome={outcome} quiet /> },
    { id: "answer", head: "Answer", width: 260, grow: true, cell: ({ answer, error }) => <Text text={answer ?? error} /> },
    { id: "prediction", head: "Read as", width: 180, cell: ({ prediction, reason }) => <Text text={prediction ?? reason} /> },
    { id: "references", head: "Right answers", width: 220, cell: ({ reference_answers }) => <Text text={shown(reference_answers)} /> },
    ...scores.map(({ metric }): Column<StoredSample> => ({ id: `metric ${metric}`, head: metric, width: 110, align: "end", cell: ({ scores: values }) => value(values[metric]) })),
    { id: "mistake", head: "Mistake", width: 140, cell: ({ mistake }) => mistake },
  ];
}

function value(one: number | null | undefined): string {
  return typeof one === "number" ? number(one) : "–";
}

/** References as text: those of plain text without their marks. */
function shown(references: unknown): string {
  const all = Array.isArray(references) ? (references as unknown[]) : [references];
  return all.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(" · ");
}

function Text({ text }: { readonly text: string }) {
  return <span className={layout.clip} title={text}>{text}</span>;
}
