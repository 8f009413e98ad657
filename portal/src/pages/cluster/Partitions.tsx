import type { Partition } from "../../api/schema";
import { Empty, Panel } from "../../ui";
import { count, counted } from "../../ui/format";
import { type GpuShare, gpusOf, limitOf } from "./nodes";
import layout from "../../ui/layout.module.css";
import styles from "./cluster.module.css";

/** Queues, and their GPUs by type: free, held, on nodes that take no jobs. */
export function Partitions({ partitions }: { readonly partitions: readonly Partition[] }) {
  return (
    <Panel title="Partitions">
      {partitions.length === 0 && <Empty title="Slurm has not listed its partitions yet" />}
      <ul className={styles.partitions}>
        {partitions.map((partition) => (
          <li key={partition.name} className={styles.partition}>
            <div className={layout.bar}>
              <h3>
                {partition.name}
                {partition.default && <span className={styles.tag}>default</span>}
                {!partition.up && <span className={styles.tag} data-tone="bad">starts no jobs</span>}
              </h3>
              <span className={layout.soft}>{`${counted(partition.nodes, "node")}, ${count(partition.idle)} idle, time limit: ${limitOf(partition.time_limit)}`}</span>
            </div>
            {gpusOf(partition).map((share) => (
              <Share key={share.type} share={share} />
            ))}
            {Object.keys(partition.gpus).length === 0 && <p className={layout.soft}>No GPUs</p>}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Share({ share }: { readonly share: GpuShare }) {
  const { type, total, free, held, down } = share;
  const width = (part: number) => ({ width: `${total > 0 ? (100 * part) / total : 0}%` });
  const words = [`${count(free)} free`, `${count(held)} allocated`, ...(down > 0 ? [`${count(down)} out of service`] : [])].join(", ");
  return (
    <div className={styles.share}>
      <span className={styles.type}>{type}</span>
      <span className={styles.bar} role="img" aria-label={`${type}: ${words}, of ${count(total)}`}>
        <span className={styles.free} style={width(free)} />
        <span className={styles.held} style={width(held)} />
        <span className={styles.down} style={width(down)} />
      </span>
      <span className={styles.words} aria-hidden>
        <strong>{count(free)}</strong> of {count(total)} free
        {down > 0 && <span className={layout.soft}>, {count(down)} out of service</span>}
      </span>
    </div>
  );
}
