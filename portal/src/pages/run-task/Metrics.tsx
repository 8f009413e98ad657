import { Link } from "@tanstack/react-router";
import type { Score } from "../../api/schema";
import { type Entry, numberIn, textIn } from "../../parts/entries";
import { CopyButton, Icon, Panel } from "../../ui";
import { count, counted, number } from "../../ui/format";
import { Interval } from "./Interval";
import styles from "./run-task.module.css";

interface Props {
  readonly metrics: readonly Entry[];
  /** Their scores; those of judges have a standing. */
  readonly scores: readonly Score[];
  readonly experiment: string;
  readonly task: string;
}

/** Every metric with its interval, n, and how it was made. */
export function Metrics({ metrics, scores, experiment, task }: Props) {
  return (
    <Panel title="Metrics">
      <div className={styles.scroll}>
        <table className={styles.table}>
          <thead>
            <tr>
              <th scope="col">Metric</th>
              <th scope="col" className={styles.end}>Value</th>
              <th scope="col">95 % interval</th>
              <th scope="col" className={styles.end} title="Samples scored, and documents they belong to">n</th>
              <th scope="col">Samples</th>
            </tr>
          </thead>
          <tbody>
            {metrics.map((one) => (
              <tr key={textIn(one, "metric")}>
                <th scope="row">
                  {textIn(one, "metric")}
                  {textIn(one, "unit") && <span className={styles.dim}>, {textIn(one, "unit")}</span>}
                  {one["higher_is_better"] === false && <span className={styles.dim}> less is better</span>}
                  <details className={styles.how}>
                    <summary>how</summary>
                    <p>
                      <code>{textIn(one, "signature") || "–"}</code>
                      {textIn(one, "signature") && <CopyButton text={textIn(one, "signature")} />}
                    </p>
                    <p>
                      {[textIn(one, "method") && `interval: ${textIn(one, "method")}`, textIn(one, "average") && `average: ${textIn(one, "average")}`].filter(Boolean).join(" · ")}
                    </p>
                  </details>
                </th>
                <td className={styles.end}>
                  <strong>{number(numberIn(one, "value"))}</strong>
                  <span className={styles.dim}> {scores.find((score) => score.metric === textIn(one, "metric"))?.standing}</span>
                </td>
                <td>
                  <Interval value={numberIn(one, "value")} low={numberIn(one, "low")} high={numberIn(one, "high")} />
                </td>
                <td className={styles.end}>
                  {count(numberIn(one, "n"))}
                  <span className={styles.dim}> from {counted(numberIn(one, "clusters") ?? 0, "document")}</span>
                </td>
                <td>
                  <Link className={styles.small} to="/e/$experiment/t/$task/samples" params={{ experiment, task }} search={{ metric: textIn(one, "metric"), wrong: true, sort: textIn(one, "metric"), order: one["higher_is_better"] === false ? "desc" : "asc" }}>
                    worst first <Icon name="right" size={12} />
                  </Link>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
