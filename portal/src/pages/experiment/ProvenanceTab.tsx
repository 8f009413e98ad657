import { useApi } from "../../api";
import { Command, CopyButton, FaultBox, Panel, Skeleton } from "../../ui";
import layout from "../../ui/layout.module.css";
import styles from "./experiment.module.css";

/** What the figures depend on, and how to run the same again. */
export function ProvenanceTab({ experiment }: { readonly experiment: string }) {
  const { data, error, refetch } = useApi("/experiments/{experiment}/provenance", { path: { experiment } });
  if (error && !data) return <FaultBox fault={error} retry={() => void refetch()} />;
  if (!data) return <Skeleton lines={10} />;
  return (
    <div className={layout.stack}>
      <Panel title="Run the same again">
        <Command text={data.reproduce} />
      </Panel>
      {data.facts.length > 0 && (
      <Panel title="What the figures depend on">
        <dl className={styles.provenance}>
          {data.facts.map(([name, value], place) => (
            <div key={`${name} ${place}`}>
              <dt>{name}</dt>
              <dd>
                <span className={layout.wrap}>{value}</span>
                {value.length > 16 && <CopyButton text={value} />}
              </dd>
            </div>
          ))}
        </dl>
      </Panel>
      )}
      {data.plan && (
        <Panel title="The plan as it was written" actions={<CopyButton text={data.plan} label="Copy" />}>
          {/* Scrolls: the keyboard must reach it. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          <pre className={styles.plan} tabIndex={0} aria-label="Plan">
            {data.plan}
          </pre>
        </Panel>
      )}
    </div>
  );
}
