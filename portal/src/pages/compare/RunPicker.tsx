import { useState } from "react";

import { useApi } from "../../api";
import { Ago, Button, Dialog, FaultBox, Skeleton, StateChip, TextInput } from "../../ui";
import { added, removed } from "./runs";
import styles from "./RunPicker.module.css";

interface Props {
  readonly runs: readonly string[];
  readonly onRuns: (runs: readonly string[]) => void;
}

/** Experiments shown to choose from. */
const SOME = 30;

/** Chooses experiments to compare, or run tasks of them. */
export function RunPicker({ runs, onRuns }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button icon="plus" onClick={() => setOpen(true)}>
        Add a run
      </Button>
      <Dialog open={open} title="Add a run" onClose={() => setOpen(false)} wide actions={<Button kind="primary" onClick={() => setOpen(false)}>Done</Button>}>
        {open && <Choices runs={runs} onRuns={onRuns} />}
      </Dialog>
    </>
  );
}

function Choices({ runs, onRuns }: Props) {
  const [text, setText] = useState("");
  const [within, setWithin] = useState<string | null>(null);
  const found = useApi("/experiments", { query: { text, limit: SOME } }, { keep: true });
  return (
    <div className={styles["picker"]}>
      <TextInput label="Search experiments" value={text} onChange={setText} delay={200} search width="100%" />
      <FaultBox fault={found.error} />
      {found.isPending && <Skeleton lines={4} />}
      <ul className={styles["list"]}>
        {found.data?.items.map((row) => (
          <li key={row.id} className={styles["item"]}>
            <div className={styles["line"]}>
              <Choice run={row.id} runs={runs} onRuns={onRuns} />
              <StateChip state={row.state} quiet />
              <span className={styles["soft"]}>
                <Ago time={row.created} />
              </span>
              <Button kind="quiet" small aria-expanded={within === row.id} onClick={() => setWithin(within === row.id ? null : row.id)}>
                {row.run_tasks} run tasks
              </Button>
            </div>
            <p className={styles["soft"]}>{row.models.join(", ")}</p>
            {within === row.id && <Tasks experiment={row.id} runs={runs} onRuns={onRuns} />}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Tasks({ experiment, ...rest }: Props & { readonly experiment: string }) {
  const found = useApi("/experiments/{experiment}/run-tasks", { path: { experiment }, query: { limit: 200 } });
  return (
    <>
      <FaultBox fault={found.error} />
      <ul className={styles["tasks"]}>
        {found.data?.items.map((row) => (
          <li key={row.name}>
            <Choice run={`${experiment}:${row.name}`} label={row.name} {...rest} />
          </li>
        ))}
      </ul>
    </>
  );
}

interface ChoiceProps extends Props {
  readonly run: string;
  readonly label?: string;
}

function Choice({ run, label = run, runs, onRuns }: ChoiceProps) {
  return (
    <label className={styles["choice"]}>
      <input type="checkbox" checked={runs.includes(run)} onChange={(event) => onRuns(event.target.checked ? added(runs, run) : removed(runs, run))} />
      <span>{label}</span>
    </label>
  );
}
