import type { FigureName } from "../api/schema";
import { Chips, Empty, ServedChart } from "../ui";
import layout from "../ui/layout.module.css";
import styles from "./figures.module.css";
import { WhenSeen } from "./WhenSeen";

const GROUP_WORDS: Readonly<Record<string, string>> = {
  quality: "Quality", agents: "Agents", speed: "Speed", resources: "Resources", failures: "Failures",
};

/** Of a chart with its title, about. */
const HEIGHT = 390;

interface Asked {
  readonly experiment: string;
  /** Null: figures of the whole experiment. */
  readonly runTask: string | null;
}

/** Figures of an experiment or run task, by group; each is fetched when it is shown. */
export function Figures({ figures, group, onGroup, ...asked }: Asked & {
  readonly figures: readonly FigureName[];
  /** The group shown; empty: all. */
  readonly group: string;
  readonly onGroup: (group: string) => void;
}) {
  if (figures.length === 0)
    return <Empty title="No charts yet">Charts appear with the first answers and scores.</Empty>;
  const counts = new Map<string, number>();
  for (const one of figures) counts.set(one.group, (counts.get(one.group) ?? 0) + 1);
  const options = [...counts].map(([value, number]) => ({ value, label: GROUP_WORDS[value] ?? value, count: number }));
  const shown = counts.has(group) ? figures.filter((one) => one.group === group) : figures;
  return (
    <div className={layout.stack}>
      {options.length > 1 ? (
        <Chips label="Kinds of charts" options={options} chosen={counts.has(group) ? [group] : []}
          onChange={(chosen) => onGroup(chosen.findLast((one) => one !== group) ?? "")} />
      ) : null}
      <div className={styles.grid}>
        {shown.map((one) => (
          <div key={one.name} className={styles.one}>
            <WhenSeen height={HEIGHT}>
              <Served figure={one.name} {...asked} />
            </WhenSeen>
          </div>
        ))}
      </div>
    </div>
  );
}

function Served({ experiment, runTask, figure }: Asked & { readonly figure: string }) {
  if (runTask === null)
    return <ServedChart path="/experiments/{experiment}/figures/{figure}" params={{ path: { experiment, figure } }} />;
  return (
    <ServedChart path="/experiments/{experiment}/run-tasks/{run_task}/figures/{figure}"
      params={{ path: { experiment, run_task: runTask, figure } }} />
  );
}
