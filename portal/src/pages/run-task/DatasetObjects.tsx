import { useMemo } from "react";
import type { DatasetObject } from "../../api/schema";
import { Ago, Bar, Button, type Column, Empty, FaultBox, Panel, Skeleton, StateChip, Table } from "../../ui";
import { count, counted as words } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import { ShardGrid } from "./ShardGrid";
import { useObjects } from "./use-objects";

interface Props {
  readonly experiment: string;
  readonly task: string;
  /** Number of the selected object. */
  readonly chosen: number | null;
  readonly asTable: boolean;
  readonly onChoose: (object: number | null) => void;
  readonly onTable: (table: boolean) => void;
}

const COLUMNS: readonly Column<DatasetObject>[] = [
  { id: "index", head: "Shard", width: 90, cell: (one) => String(one.index) },
  { id: "state", head: "State", width: 130, cell: (one) => <StateChip state={one.state} /> },
  { id: "answered", head: "Samples done", width: 150, cell: (one) => <Bar value={one.answered} max={one.samples} label={`Samples done of shard ${one.index}`} /> },
  { id: "samples", head: "Samples", width: 90, align: "end", cell: (one) => count(one.samples) },
  { id: "attempt", head: "Attempt", width: 84, align: "end", cell: (one) => (one.attempt === 0 ? "–" : String(one.attempt)) },
  { id: "node", head: "Node", width: 130, cell: (one) => one.node ?? "–" },
  { id: "since", head: "Started", width: 110, cell: (one) => (typeof one.since === "number" ? <Ago time={one.since} /> : "–") },
  { id: "cause", head: "Cause", width: 260, grow: true, cell: (one) => <span title={one.cause ?? undefined}>{one.cause ?? ""}</span> },
];

/** Progress of each object of the dataset: a cell an object, or a table. */
export function DatasetObjects({ experiment, task, chosen, asTable, onChoose, onTable }: Props) {
  const { objects, total, loading, fault, again } = useObjects(experiment, task);
  const largest = useMemo(() => objects.reduce((most, one) => Math.max(most, one.samples), 0), [objects]);
  const actions = objects.length > 0 && (
    <Button kind="quiet" small icon={asTable ? "chart" : "table"} aria-pressed={asTable} onClick={() => onTable(!asTable)}>
      {asTable ? "Grid" : "Table"}
    </Button>
  );
  return (
    <Panel title="Shards" actions={actions}>
      {fault && objects.length === 0 ? (
        <FaultBox fault={fault} retry={again} />
      ) : loading ? (
        <Skeleton lines={3} />
      ) : objects.length === 0 ? (
        <Empty title="There are no shards yet">hpcbench splits the dataset when you submit the experiment.</Empty>
      ) : (
        <div className={layout.stack}>
          <p className={layout.soft}>
            The dataset is split into {words(total, "shard")} of up to {words(largest, "sample")}; a worker takes one shard at a time.
            {objects.length < total && ` The first ${count(objects.length)} are loaded so far.`}
          </p>
          {asTable ? <Table label="Shards" height="fit" rows={objects} columns={COLUMNS} rowKey={(one) => String(one.index)} current={chosen === null ? undefined : String(chosen)} /> : <ShardGrid objects={objects} chosen={chosen} onChoose={onChoose} />}
        </div>
      )}
    </Panel>
  );
}
