import type { Comparison, MetricCompared } from "../../api/schema";
import { Button, Panel, Scroller, StateChip } from "../../ui";
import { count } from "../../ui/format";
import { join } from "../../ui/join";
import styles from "./Overview.module.css";
import { letter } from "./runs";
import { digitsFor, interval, signed, verdictOf, whyNone } from "./verdict";

interface Props {
  readonly comparison: Comparison;
  /** Empty: the first of each run task. */
  readonly metric: string;
  readonly current: number;
  readonly onCandidate: (at: number) => void;
}

/** Several candidates at once: a row a run task of the baseline, a column a candidate. */
export function Overview({ comparison, metric, current, onCandidate }: Props) {
  const { candidates } = comparison;
  const tasks = [...new Set(candidates.flatMap((one) => one.metrics.map((row) => row.baseline)))];
  return (
    <Panel bare title="All candidates against A">
      <Scroller className={styles["scroll"]} label="All candidates against the baseline">
        <table className={styles["table"]} aria-label="All candidates against the baseline">
          <thead>
            <tr>
              <th scope="col">run task of A</th>
              {candidates.map((one, at) => (
                <th key={one.side.run} scope="col" className={join(at === current && styles["current"])}>
                  <Button small kind="quiet" aria-pressed={at === current} onClick={() => onCandidate(at)} title={one.side.run}>
                    {letter(at + 1)} <span className={styles["name"]}>{one.side.run_task ?? one.side.experiment}</span>
                  </Button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {tasks.map((task) => (
              <tr key={task}>
                <th scope="row">{task}</th>
                {candidates.map((one, at) => (
                  <td key={one.side.run} className={join(at === current && styles["current"])}>
                    <Cell row={one.metrics.find((row) => row.baseline === task && (metric === "" || row.metric === metric))} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroller>
    </Panel>
  );
}

function Cell({ row }: { readonly row: MetricCompared | undefined }) {
  if (!row) return <span className={styles["soft"]}>not compared</span>;
  const verdict = verdictOf(row);
  const digits = digitsFor(...row.values);
  return (
    <div className={styles["cell"]}>
      {verdict === "none" ? <span className={styles["soft"]}>{whyNone(row)}</span> : <StateChip state={verdict} />}
      <span>
        {row.metric} <strong>{row.difference === null ? "–" : signed(row.difference, digits)}</strong>
      </span>
      <span className={styles["soft"]}>
        {row.low !== null && row.high !== null ? interval(row.low, row.high, digits) : "no interval"}, n {count(row.n)}
      </span>
    </div>
  );
}
