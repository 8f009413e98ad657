import { Link } from "@tanstack/react-router";
import { useApi, usePages } from "../../api";
import type { MetricValue } from "../../api/schema";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { Ago, Coded, type Column, Command, Cut, Empty, FaultBox, Icon, ScoreText, Select, Skeleton, Table, TextInput } from "../../ui";
import layout from "../../ui/layout.module.css";
import styles from "./metrics.module.css";

/** A metric over all experiments, the newest first: this home's, and those of others in the database of results. */
export default function MetricsPage() {
  const { search, update } = usePlace("/metrics");
  const known = useApi("/values/metrics", {}, { fresh: 60_000 });
  const names = known.data?.names ?? [];
  const metric = search.metric || (names[0] ?? "");
  const { rows, loading, fault, again, first } = usePages("/values", metric === "" ? null : { query: { metric, text: search.text } });
  usePageTitle("Metrics");
  const onlyFiles = (first?.items ?? []).some((one) => one.only_files);
  const options = [...new Set([...names, ...(metric === "" ? [] : [metric])])].map((value) => ({ value }));
  return (
    <div className={layout.page}>
      <div className={layout.bar}>
        <h1>Metrics</h1>
        {metric !== "" && (
          <div className={layout.row} role="search" aria-label="Values">
            <Select label="Metric" value={metric} options={options} onChange={(metric) => update({ metric })} />
            <TextInput label="Search plans, models, datasets, owners" value={search.text} onChange={(text) => update({ text }, { replace: true })} search width={260} />
          </div>
        )}
      </div>
      {first?.fault && (
        <div role="status" className={styles.away}>
          <p>
            <Icon name="warning" size={14} /> The database of results gives no answer: <Coded text={first.fault} />. This list has the experiments of this home, from their files.
          </p>
        </div>
      )}
      {onlyFiles && (
        <div role="status" className={styles.away}>
          <p>Experiments marked “only in files” are not in the database yet. Others see them there after:</p>
          <Command title="Send them" text="hpcbench database sync --all" />
        </div>
      )}
      <FaultBox fault={fault ?? known.error} retry={again} />
      {(known.isPending || (metric !== "" && loading)) && <Skeleton lines={8} />}
      {known.data && metric === "" && <Empty title="No metric yet">A value appears here when an experiment has ended.</Empty>}
      {metric !== "" && !loading && (
        <div className={styles.table}>
          <Table
            label={`Values of ${metric}`}
            rows={rows}
            columns={columnsOf(metric)}
            rowKey={(row) => `${row.experiment} ${row.run_task}`}
            empty={<Empty title="No value passes the search">{first?.database === false ? <>These are the experiments of this home. With <code>database:</code> in the site profile, those of others are here, too.</> : "Search for other words."}</Empty>}
          />
        </div>
      )}
    </div>
  );
}

function columnsOf(metric: string): Column<MetricValue>[] {
  return [
    { id: "experiment", head: "Experiment", width: 250, grow: true, cell: (row) => <Name row={row} /> },
    { id: "created", head: "Submitted", width: 110, align: "end", cell: (row) => <Ago time={row.created} /> },
    { id: "value", head: metric, width: 180, align: "end", title: "Value and 95 % interval; only values of one signature are comparable", cell: (row) => <Value metric={metric} row={row} /> },
    { id: "model", head: "Model", width: 160, cell: (row) => <Cut text={row.model} /> },
    { id: "dataset", head: "Dataset", width: 150, cell: (row) => <Cut text={row.dataset} /> },
    { id: "run_task", head: "Run task", width: 160, cell: (row) => <Cut text={row.run_task} /> },
    { id: "plan", head: "Plan", width: 110, cell: (row) => row.plan },
    { id: "owner", head: "Owner", width: 110, cell: (row) => (row.owner ? row.owner : row.only_files ? "you, only in files" : "you") },
  ];
}

function Name({ row }: { readonly row: MetricValue }) {
  if (row.owner)
    return (
      <Link to="/stored/$experiment" params={{ experiment: row.experiment }} search={{ task: row.run_task }}>
        <Cut text={row.experiment} />
      </Link>
    );
  if (!row.here) return <span title="Its files are not in this home"><Cut text={row.experiment} /></span>;
  return (
    <Link to="/e/$experiment/t/$task" params={{ experiment: row.experiment, task: row.run_task }}>
      <Cut text={row.experiment} />
    </Link>
  );
}

function Value({ metric, row }: { readonly metric: string; readonly row: MetricValue }) {
  const { value, low, high, n, higher_is_better, signature, unit } = row;
  return (
    <span title={signature}>
      <ScoreText score={{ metric, value, low, high, n: n ?? 0, documents: 0, higher_is_better, unit, standing: "" }} interval />
    </span>
  );
}
