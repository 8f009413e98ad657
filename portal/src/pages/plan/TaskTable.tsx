import type { Expanded } from "../../api/schema";
import { type Column, Empty, Skeleton, Table } from "../../ui";
import { count, counted } from "../../ui/format";
import type { Check } from "./use-check";
import layout from "../../ui/layout.module.css";

const COLUMNS: readonly Column<Expanded>[] = [
  { id: "name", head: "Run task", width: 240, grow: true, cell: (row) => row.name },
  { id: "ml_task", head: "ML task", width: 110, cell: (row) => row.ml_task },
  { id: "model", head: "Model", width: 200, grow: true, cell: (row) => row.model },
  { id: "dataset", head: "Dataset", width: 180, grow: true, cell: (row) => row.dataset },
  { id: "prompt", head: "Prompt", width: 150, cell: (row) => row.prompt || "–" },
  { id: "gpus", head: "GPUs", width: 70, align: "end", title: "GPUs of a worker", cell: (row) => count(row.gpus) },
  { id: "samples", head: "Samples", width: 100, align: "end", title: "Known after an estimate", cell: (row) => count(row.samples) },
];

/** Run tasks that the plan comes to. */
export function TaskTable({ check }: { readonly check: Check }) {
  const { found, estimated, outdated } = check;
  if (!found) return <Skeleton />;
  const rows = estimated && !outdated ? estimated.run_tasks : found.run_tasks;
  if (rows.length === 0) return <Empty title="No run tasks yet">Run tasks appear here when the plan has no syntax error.</Empty>;
  return (
    <div className={layout.tight}>
      {found.run_tasks_total > rows.length && <p className={layout.soft}>{`The first ${count(rows.length)} of ${counted(found.run_tasks_total, "run task")}.`}</p>}
      <Table label="Run tasks of the plan" rows={rows} columns={COLUMNS} rowKey={(row) => row.name} height="fit" />
    </div>
  );
}
