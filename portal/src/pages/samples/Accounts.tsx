import type { MetricAccount } from "../../api/schema";
import { number } from "../../ui/format";
import styles from "./Accounts.module.css";
import { Part } from "./Part";
import { ScoreChip } from "./ScoreChip";

interface Props {
  readonly accounts: readonly MetricAccount[];
  /** Its heading: two on one page need different ones. */
  readonly title?: string;
}

/** What each metric says of a sample, and why. */
export function Accounts({ accounts, title = "Scores" }: Props) {
  return (
    <Part title={title}>
      {accounts.length === 0 && <p className={styles["none"]}>not scored yet</p>}
      <ul className={styles["accounts"]}>
        {accounts.map((one) => (
          <li key={one.signature || one.metric} className={styles["account"]}>
            <div className={styles["head"]}>
              <strong title={one.signature}>{one.metric}</strong>
              <span className={styles["way"]}>{one.higher_is_better ? "more is better" : "less is better"}</span>
              <ScoreChip value={one.value} moreIsBetter={one.higher_is_better} />
            </div>
            {one.why && <p className={styles["why"]}>{one.why}</p>}
            {one.fields.length > 0 && <FieldTable metric={one.metric} fields={one.fields} />}
          </li>
        ))}
      </ul>
    </Part>
  );
}

type FieldRow = MetricAccount["fields"][number];

/** Field by field: what was right and what was answered. */
function FieldTable({ metric, fields }: { readonly metric: string; readonly fields: readonly FieldRow[] }) {
  return (
    <div className={styles["scroll"]}>
      <table className={styles["table"]} aria-label={`Fields of ${metric}`}>
        <thead>
          <tr>
            <th scope="col">field</th>
            <th scope="col">score</th>
            <th scope="col">reference</th>
            <th scope="col">answer</th>
          </tr>
        </thead>
        <tbody>
          {fields.map((field, at) => (
            <tr key={at}>
              <th scope="row">{told(field["field"])}</th>
              <td>{typeof field["value"] === "number" ? number(field["value"]) : told(field["value"])}</td>
              <td>{told(field["reference"])}</td>
              <td>{told(field["answer"])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A value of any sort as text. */
function told(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
