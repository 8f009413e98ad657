import type { Candidate } from "../../api/schema";
import { Toggle } from "../../ui";
import styles from "./Careful.module.css";
import { refusalOf } from "./told";

interface Props {
  readonly candidate: Candidate;
  readonly common: boolean;
  readonly onCommon: (common: boolean) => void;
}

/** What could not be compared and why, and what to know before believing the rest. */
export function Careful({ candidate, common, onCommon }: Props) {
  const refused = candidate.refused.map(refusalOf);
  const other = refused.some((one) => one.remedy.includes("common"));
  return (
    <div className={styles["careful"]}>
      {refused.length > 0 && (
        <div className={styles["refused"]} role="note">
          <h2>Not compared</h2>
          <ul>
            {refused.map((one, at) => (
              <li key={at}>
                <strong>{[one.tasks, one.metric].filter(Boolean).join(", ")}</strong>: {one.why}
                {one.remedy && <span className={styles["remedy"]}> {one.remedy}</span>}
              </li>
            ))}
          </ul>
        </div>
      )}
      {(other || common) && <Toggle label="Compare the common samples" checked={common} onChange={onCommon} />}
      {candidate.careful.length > 0 && (
        <div className={styles["notes"]} role="note">
          <h2>Warnings</h2>
          <ul>
            {candidate.careful.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}
