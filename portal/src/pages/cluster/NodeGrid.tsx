import { useMemo } from "react";
import type { NodeCell, Partition } from "../../api/schema";
import { usePlace } from "../../app/place";
import { Empty, Icon, type IconName, Panel, Select, Toggle } from "../../ui";
import { counted } from "../../ui/format";
import { described, lookOf, type NodeLook, WORDS } from "./nodes";
import layout from "../../ui/layout.module.css";
import styles from "./cluster.module.css";

const SIGNS: Readonly<Record<NodeLook, IconName>> = { free: "check", part: "half", full: "dot", away: "cross" };
const CELLS = 16;

interface Props {
  readonly nodes: readonly NodeCell[];
  readonly total: number;
  readonly partitions: readonly Partition[];
}

/** Nodes with a cell for each GPU. */
export function NodeGrid({ nodes, total, partitions }: Props) {
  const { search, update } = usePlace("/cluster");
  const shown = useMemo(
    () => nodes.filter((node) => (!search.partition || node.partition === search.partition) && (!search.free || (node.up && node.gpus > node.gpus_used))),
    [nodes, search.partition, search.free],
  );
  const options = [{ value: "", label: "All partitions" }, ...partitions.map(({ name }) => ({ value: name }))];
  return (
    <Panel
      title="Nodes"
      actions={
        <>
          <Select label="Partition" value={search.partition} options={options} onChange={(partition) => update({ partition }, { replace: true })} />
          <Toggle label="With a free GPU" checked={search.free} onChange={(free) => update({ free }, { replace: true })} />
        </>
      }
    >
      <div className={layout.stack}>
        <Legend />
        {shown.length === 0 ? (
          <Empty title={nodes.length === 0 ? "Slurm has not listed its nodes yet" : "No node passes the filter"} />
        ) : (
          <ul className={styles.nodes} aria-label="Nodes">
            {shown.map((node) => (
              <Node key={node.name} node={node} />
            ))}
          </ul>
        )}
        {total > nodes.length && <p className={layout.soft}>{`The first ${nodes.length} of ${counted(total, "node")}.`}</p>}
      </div>
    </Panel>
  );
}

function Legend() {
  return (
    <p className={styles.legend}>
      {(Object.keys(WORDS) as NodeLook[]).map((look) => (
        <span key={look} data-look={look}>
          <Icon name={SIGNS[look]} size={13} /> {WORDS[look]}
        </span>
      ))}
      <span>
        <span className={styles.gpu} data-held /> allocated GPU
      </span>
      <span>
        <span className={styles.gpu} /> free GPU
      </span>
    </p>
  );
}

function Node({ node }: { readonly node: NodeCell }) {
  const look = lookOf(node);
  const told = described(node);
  return (
    <li className={styles.node} data-look={look} title={told}>
      <span className="visually-hidden">{told}</span>
      <span className={styles.label} aria-hidden>
        <Icon name={SIGNS[look]} size={12} />
        <span className={styles.called}>{node.name}</span>
        {node.mine > 0 && (
          <span className={styles.mine}>
            <Icon name="user" size={11} />
            {node.mine}
          </span>
        )}
      </span>
      <span className={styles.gpus} aria-hidden>
        {Array.from({ length: Math.min(node.gpus, CELLS) }, (_, place) => (
          <span key={place} className={styles.gpu} data-held={place < node.gpus_used || undefined} data-away={!node.up || undefined} />
        ))}
        {node.gpus === 0 && <span className={layout.soft}>{`${node.cpus_used}/${node.cpus} CPUs`}</span>}
        {node.gpus > CELLS && <span className={layout.soft}>{`${node.gpus_used}/${node.gpus}`}</span>}
      </span>
    </li>
  );
}
