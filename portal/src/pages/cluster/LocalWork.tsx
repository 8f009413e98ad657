import { Link } from "@tanstack/react-router";
import type { LocalWork as Work } from "../../api/schema";
import { Ago, Bar, type Column, Empty, Panel, Table } from "../../ui";
import { count } from "../../ui/format";

const COLUMNS: readonly Column<Work>[] = [
  {
    id: "experiment",
    head: "Experiment",
    width: 280,
    grow: true,
    cell: (row) => (
      <Link to="/e/$experiment" params={{ experiment: row.experiment }}>
        {row.experiment}
      </Link>
    ),
  },
  { id: "plan", head: "Plan", width: 160, cell: (row) => row.plan },
  { id: "answered", head: "Samples done", width: 200, cell: (row) => <Bar label={`Samples of ${row.plan} done`} value={row.answered} max={row.samples} /> },
  { id: "processes", head: "Processes", width: 100, align: "end", cell: (row) => count(row.processes) },
  { id: "started", head: "Submitted", width: 120, align: "end", cell: (row) => <Ago time={row.started} /> },
];

/** Experiments that run on this machine without Slurm. */
export function LocalWork({ work }: { readonly work: readonly Work[] }) {
  return (
    <Panel title="On this machine" bare>
      <Table label="Experiments on this machine" rows={work} columns={COLUMNS} rowKey={(row) => row.experiment} height="fit" empty={<Empty title="No experiment runs here now" />} />
    </Panel>
  );
}
