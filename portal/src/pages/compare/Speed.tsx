import type { Candidate } from "../../api/schema";
import { Empty, Scroller, StateChip } from "../../ui";
import { bytes, number } from "../../ui/format";
import { join } from "../../ui/join";
import styles from "./Speed.module.css";
import { type SpeedRow, speedOf, speedVerdict } from "./told";

/** Speed and memory side by side, with what keeps them from being compared. */
export function Speed({ candidate }: { readonly candidate: Candidate }) {
  const rows = candidate.speed.map(speedOf);
  if (rows.length === 0) return <Empty title="No figures of speed">The runs have no figure in common.</Empty>;
  return (
    <div className={styles["speed"]}>
      {candidate.speed_careful.map((one) => (
        <p key={one} className={styles["careful"]}>
          <strong>Not comparable:</strong> {one}
        </p>
      ))}
      <Scroller className={styles["scroll"]} label="Speed and memory">
        <table className={styles["table"]} aria-label="Speed and memory">
          <thead>
            <tr>
              <th scope="col">run task</th>
              <th scope="col">figure</th>
              <th scope="col" className={styles["number"]}>baseline</th>
              <th scope="col" className={styles["number"]}>candidate</th>
              <th scope="col" className={styles["number"]}>ratio</th>
              <th scope="col">95 % interval</th>
              <th scope="col">verdict</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, at) => (
              <Figure key={`${row.task} ${row.label} ${at}`} row={row} first={rows[at - 1]?.task !== row.task} />
            ))}
          </tbody>
        </table>
      </Scroller>
      {candidate.speed_notes.length > 0 && (
        <ul className={styles["notes"]}>
          {candidate.speed_notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Figure({ row, first }: { readonly row: SpeedRow; readonly first: boolean }) {
  const verdict = speedVerdict(row);
  const told = (value: number | null) => (row.unit === "bytes" ? bytes(value) : `${number(value)} ${row.unit}`);
  return (
    <tr className={join(first && styles["first"], !row.comparable && styles["away"])}>
      <th scope="row">{first ? row.task : <span className="visually-hidden">{row.task}</span>}</th>
      <td>
        {row.label} <span title={row.higherIsBetter ? "more is better" : "less is better"}>{row.higherIsBetter ? "↑" : "↓"}</span>
      </td>
      <td className={styles["number"]}>{told(row.baseline)}</td>
      <td className={styles["number"]}>{told(row.candidate)}</td>
      <td className={styles["number"]}>{row.ratio === null ? "–" : row.ratio.toFixed(3)}</td>
      <td>{row.interval === null ? "none" : `[${row.interval[0].toFixed(3)}, ${row.interval[1].toFixed(3)}]`}</td>
      <td>{verdict === "none" ? <span>{row.comparable ? "no verdict: no interval" : "not comparable"}</span> : <StateChip state={verdict} />}</td>
    </tr>
  );
}
