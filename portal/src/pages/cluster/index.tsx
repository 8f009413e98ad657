import { useApi } from "../../api";
import type { Cluster } from "../../api/schema";
import { usePageTitle } from "../../app/title";
import { Ago, Button, Empty, FaultBox, Icon, Panel, Skeleton, Stale, useNow } from "../../ui";
import { JobTable } from "./JobTable";
import { LocalWork } from "./LocalWork";
import { NodeGrid } from "./NodeGrid";
import { Partitions } from "./Partitions";
import { Rooms } from "./Rooms";
import layout from "../../ui/layout.module.css";
import styles from "./cluster.module.css";

/** Seconds after which a word is old: Slurm is asked every thirty. */
const OLD = 90;
const EVERY = 30_000;

/** The user's jobs, what is free, and how full the disks are. */
export default function ClusterPage() {
  const found = useApi("/cluster", {}, { every: EVERY });
  const cluster = found.data;
  usePageTitle("Cluster");
  return (
    <div className={layout.page}>
      <div className={layout.bar}>
        <h1>Cluster</h1>
        <div className={layout.row}>
          {cluster && <Age cluster={cluster} />}
          <Button small icon="reload" disabled={found.isFetching} onClick={() => void found.refetch()}>
            Refresh
          </Button>
        </div>
      </div>
      {found.error && <FaultBox fault={found.error} retry={() => void found.refetch()} />}
      {!cluster && !found.error && <Skeleton lines={8} />}
      {cluster && <Parts cluster={cluster} />}
    </div>
  );
}

function Age({ cluster }: { readonly cluster: Cluster }) {
  if (cluster.asked === null) return <span className={layout.soft}>{cluster.asking ? "Querying Slurm…" : "Slurm has not answered yet"}</span>;
  return (
    <span className={layout.soft} role="status">
      {cluster.available ? "Slurm was queried" : "Updated"} <Ago time={cluster.asked} />
      {cluster.asking && "; a new query is running"}
    </span>
  );
}

function Parts({ cluster }: { readonly cluster: Cluster }) {
  const now = useNow();
  const old = cluster.available && cluster.asked !== null && (cluster.fault !== null || now - cluster.asked > OLD) ? cluster.asked : null;
  return (
    <>
      {cluster.fault && (
        <p className={styles.fault} role="alert">
          <Icon name="warning" size={14} /> Slurm does not answer: {cluster.fault}
        </p>
      )}
      {!cluster.available && (
        <Empty title="There is no Slurm on this machine">
          Experiments of <code>executor: local</code> run here as processes; a plan with <code>executor: slurm</code> needs a login node.
        </Empty>
      )}
      <Stale since={old}>
        <div className={layout.stack}>
          {(cluster.local.length > 0 || !cluster.available) && <LocalWork work={cluster.local} />}
          {cluster.available && cluster.asked === null && <Empty title={cluster.asking ? "Querying Slurm…" : "Slurm has not answered yet"} />}
          {cluster.available && cluster.asked !== null && (
            <>
              <Panel title="Your jobs" bare>
                <JobTable jobs={cluster.jobs} />
              </Panel>
              <Partitions partitions={cluster.partitions} />
              <NodeGrid nodes={cluster.nodes} total={cluster.nodes_total} partitions={cluster.partitions} />
            </>
          )}
        </div>
      </Stale>
      <Rooms rooms={cluster.room} />
    </>
  );
}
