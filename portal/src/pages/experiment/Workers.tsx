import { Link } from "@tanstack/react-router";
import type { ExperimentStatus } from "../../api/schema";
import { Ago, Bar, type Column, Panel, StateChip, Table } from "../../ui";
import { number, percent } from "../../ui/format";

type Worker = ExperimentStatus["workers"][number];

/** The experiment is the route's: links stay on it. */
const COLUMNS: readonly Column<Worker>[] = [
  { id: "id", head: "Worker", width: 170, grow: true, cell: (one) => <span title={one.id}>{`${one.group} ${one.id}`}</span> },
  { id: "node", head: "Node", width: 130, cell: (one) => one.node },
  { id: "state", head: "State", width: 110, cell: (one) => <StateChip state={one.state} /> },
  { id: "model", head: "Model", width: 170, cell: (one) => one.model ?? "–" },
  { id: "shard", head: "Shard", width: 190, cell: (one) => <Shard worker={one} /> },
  { id: "progress", head: "Progress", width: 130, cell: (one) => (typeof one.samples === "number" ? <Bar value={one.answered ?? 0} max={one.samples} label={`Samples done by worker ${one.id}`} /> : "–") },
  { id: "gpus", head: "GPUs", width: 180, cell: (one) => one.gpus.map((gpu) => `${gpu.gpu}: ${typeof gpu.utilisation === "number" ? percent(gpu.utilisation / 100) : "–"}, ${number(gpu.used_gb)} GiB`).join(" · ") || "none" },
  { id: "heard", head: "Last message", width: 110, cell: (one) => <Ago time={one.heard} /> },
];

function Shard({ worker }: { readonly worker: Worker }) {
  if (!worker.shard) return <>–</>;
  const cut = worker.shard.lastIndexOf("/");
  const task = worker.shard.slice(0, cut);
  const index = worker.shard.slice(cut + 1);
  return (
    <Link from="/e/$experiment" to="/e/$experiment/t/$task" params={(before) => ({ ...before, task })} search={{ object: Number(index) }}>
      {worker.shard}
    </Link>
  );
}

/** Workers that live, and what they do. */
export function Workers({ workers }: { readonly workers: readonly Worker[] }) {
  if (workers.length === 0) return null;
  return (
    <Panel title={`Running workers: ${workers.length}`} bare>
      <Table label="Workers" height="fit" rows={workers} columns={COLUMNS} rowKey={(one) => one.id} />
    </Panel>
  );
}
