import { useMemo, useState } from "react";
import { useApi } from "../../api";
import { isBundle } from "../../api/bundle";
import { Definition } from "../../parts/Definition";
import { shown } from "../../parts/entries";
import { Button, Empty, FaultBox, Panel, Popover, Select, Skeleton, TextInput } from "../../ui";
import { counted, moment } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./experiment.module.css";

interface Props {
  readonly experiment: string;
  readonly plan: string;
  /** The baseline chosen; empty: the plan's own. */
  readonly baseline: string;
  readonly onBaseline: (baseline: string) => void;
}

/** Settings that differ from another run, and all settings. */
export function ConfigurationTab({ experiment, plan, baseline, onBaseline }: Props) {
  const { data, error, refetch } = useApi("/experiments/{experiment}/configuration", { path: { experiment }, query: baseline ? { baseline } : {} }, { keep: true });
  const others = useApi("/experiments", { query: { plan: [plan], limit: 100 } }, { fresh: 60_000 });
  const options = useMemo(() => {
    const found = (others.data?.items ?? []).filter((one) => one.id !== experiment);
    const names = found.flatMap((one) => one.baselines.map((name) => ({ value: name, label: `${name} (baseline)` })));
    const runs = found.map((one) => ({ value: one.id, label: `${moment(one.created)} · ${one.id}` }));
    const known = [...names, ...runs];
    return [{ value: "", label: "The plan's baseline" }, ...(baseline && !known.some((one) => one.value === baseline) ? [{ value: baseline, label: baseline }] : []), ...known];
  }, [others.data, experiment, baseline]);
  return (
    <div className={layout.stack}>
      <Panel
        title="Configured differently"
        actions={
          !isBundle() && (
            <>
              <Select label="Compare with" value={baseline} options={options} onChange={onBaseline} />
              <AnyRun onRun={onBaseline} />
            </>
          )
        }
      >
        {error && !data ? (
          <FaultBox fault={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton lines={6} />
        ) : data.why || !data.baseline ? (
          <Empty title={data.why || "There is no baseline"}>Choose another run of this plan above, or set a baseline: <code>{`hpcbench baseline set --name main EXPERIMENT`}</code></Empty>
        ) : data.differences.length === 0 ? (
          <Empty title={`Nothing differs from ${data.baseline}`}>Models, datasets, prompts, generation and resources are the same.</Empty>
        ) : (
          <div className={layout.stack}>
            <p className={layout.soft}>
              {counted(data.differences.length, "setting")} {data.differences.length === 1 ? "differs" : "differ"} from {data.baseline}.
            </p>
            {/* Scrolls on a narrow window: the keyboard must reach it. */}
            {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
            <div className={styles.scroll} tabIndex={0} role="region" aria-label="Differences">
              <table className={styles.plain}>
                <thead>
                  <tr>
                    <th scope="col">Setting</th>
                    <th scope="col">Compared run</th>
                    <th scope="col">This experiment</th>
                  </tr>
                </thead>
                <tbody>
                  {data.differences.map((one) => (
                    <tr key={one.path}>
                      <th scope="row">
                        <code>{one.path}</code>
                      </th>
                      <td>
                        <Value value={one.baseline} kind="old" />
                      </td>
                      <td>
                        <Value value={one.experiment} kind="new" />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </div>
        )}
      </Panel>
      <Whole experiment={experiment} />
    </div>
  );
}

/** A run of any plan, found by its words. */
function AnyRun({ onRun }: { readonly onRun: (run: string) => void }) {
  return (
    <Popover label="Another run" align="end">
      {(close) => (
        <Found
          onRun={(run) => {
            onRun(run);
            close();
          }}
        />
      )}
    </Popover>
  );
}

/** Experiments shown to choose from. */
const SOME = 12;

function Found({ onRun }: { readonly onRun: (run: string) => void }) {
  const [text, setText] = useState("");
  const found = useApi("/experiments", { query: { text, limit: SOME } }, { keep: true });
  return (
    <div className={layout.stack}>
      <TextInput label="Search experiments" value={text} onChange={setText} delay={200} search width="100%" />
      <FaultBox fault={found.error} />
      <ul>
        {found.data?.items.map((row) => (
          <li key={row.id}>
            <Button kind="quiet" small onClick={() => onRun(row.id)}>
              {row.id}
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** All settings as they were resolved. */
function Whole({ experiment }: { readonly experiment: string }) {
  const { data, error, refetch } = useApi("/experiments/{experiment}/configuration/whole", { path: { experiment } }, { fresh: 300_000 });
  const parts = data && [
    ["Plan", data.plan] as const,
    ["Site", data.site] as const,
    ...Object.entries(data.run_tasks).map(([name, value]) => [`Run task ${name}`, value] as const),
  ];
  return (
    <Panel title="All settings">
      <FaultBox fault={error} retry={() => void refetch()} />
      {!parts && !error && <Skeleton lines={4} />}
      {parts?.map(([title, value]) => <Definition key={title} title={title} value={value} />)}
      {data && data.total > Object.keys(data.run_tasks).length && (
        <p className={layout.soft}>Of {counted(data.total, "run task")} the first {Object.keys(data.run_tasks).length} are here; each run task&apos;s page has its own.</p>
      )}
    </Panel>
  );
}

function Value({ value, kind }: { readonly value: unknown; readonly kind: "old" | "new" }) {
  if (value === null || value === undefined) return <span className={styles.dim}>not set</span>;
  const text = <span className={styles[kind]}>{shown(value)}</span>;
  return kind === "old" ? <del className={styles.bareMark}>{text}</del> : <ins className={styles.bareMark}>{text}</ins>;
}
