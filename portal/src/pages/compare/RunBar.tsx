import type { Comparison } from "../../api/schema";
import { Button } from "../../ui";
import { moment } from "../../ui/format";
import { join } from "../../ui/join";
import styles from "./RunBar.module.css";
import { RunPicker } from "./RunPicker";
import { based, letter, MOST, removed, shifted } from "./runs";

interface Props {
  readonly runs: readonly string[];
  readonly comparison: Comparison | undefined;
  readonly onRuns: (runs: readonly string[]) => void;
}

/** Which runs are compared; the first is the baseline, and their order can be changed. */
export function RunBar({ runs, comparison, onRuns }: Props) {
  const sides = comparison ? [comparison.baseline, ...comparison.candidates.map((one) => one.side)] : [];
  return (
    <div className={styles["bar"]}>
      <ol className={styles["runs"]} aria-label="Runs, the first one the baseline">
        {runs.map((run, at) => {
          const side = sides[at];
          return (
            <li key={run} className={join(styles["run"], at === 0 && styles["baseline"])}>
              <span className={styles["letter"]} aria-hidden="true">
                {letter(at)}
              </span>
              <div className={styles["words"]}>
                <span className={styles["name"]} title={run}>
                  {run}
                </span>
                <span className={styles["more"]}>
                  {at === 0 ? "baseline" : "candidate"}
                  {side && ` · ${side.models.join(", ")} · ${moment(side.created).slice(0, 10)}`}
                </span>
              </div>
              <div className={styles["buttons"]}>
                {at > 0 && <Button kind="quiet" small icon="star" aria-label={`Make ${run} the baseline`} onClick={() => onRuns(based(runs, run))} />}
                {at > 0 && <Button kind="quiet" small icon="left" aria-label={`Move ${run} forward`} onClick={() => onRuns(shifted(runs, run, -1))} />}
                {at < runs.length - 1 && <Button kind="quiet" small icon="right" aria-label={`Move ${run} back`} onClick={() => onRuns(shifted(runs, run, 1))} />}
                <Button kind="quiet" small icon="cross" aria-label={`Remove ${run}`} onClick={() => onRuns(removed(runs, run))} />
              </div>
            </li>
          );
        })}
      </ol>
      {runs.length < MOST && <RunPicker runs={runs} onRuns={onRuns} />}
    </div>
  );
}
