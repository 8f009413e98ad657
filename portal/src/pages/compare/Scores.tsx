import type { Candidate, MetricCompared } from "../../api/schema";
import { Scroller, StateChip } from "../../ui";
import { count, counted } from "../../ui/format";
import { join } from "../../ui/join";
import { FlipBar } from "./FlipBar";
import styles from "./Scores.module.css";
import type { Change } from "./search";
import { digitsFor, interval, onStrip, reachOf, signed, verdictOf, whyNone } from "./verdict";

export interface Chosen {
  readonly task: string;
  readonly other: string;
  readonly by: string;
  readonly change: Change;
}

interface Props {
  readonly candidate: Candidate;
  readonly rows: readonly MetricCompared[];
  readonly chosen: Chosen | null;
  readonly onChoose: (chosen: Chosen) => void;
}

/** Each metric of each pair of run tasks: both values, the difference with its interval, n, and what may be said. */
export function Scores({ candidate, rows, chosen, onChoose }: Props) {
  return (
    <Scroller className={styles["scroll"]} label={`Scores of ${candidate.side.experiment} against the baseline`}>
      <table className={styles["table"]} aria-label={`Scores of ${candidate.side.experiment} against the baseline`} data-testid="scores">
        <thead>
          <tr>
            <th scope="col">run task</th>
            <th scope="col">metric</th>
            <th scope="col" className={styles["number"]}>
              baseline
            </th>
            <th scope="col" className={styles["number"]}>
              candidate
            </th>
            <th scope="col">difference, 95 % interval</th>
            <th scope="col" className={styles["number"]}>
              p
            </th>
            <th scope="col" className={styles["number"]}>
              n
            </th>
            <th scope="col">verdict</th>
            <th scope="col">lost, won, both wrong, partly, right</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <ScoreRow
              key={`${row.baseline} ${row.candidate} ${row.signature}`}
              row={row}
              first={rows[at - 1]?.candidate !== row.candidate || rows[at - 1]?.baseline !== row.baseline}
              reach={reachOf(rows.filter((one) => one.metric === row.metric))}
              chosen={chosen?.task === row.baseline && chosen.other === row.candidate && chosen.by === row.metric ? chosen.change : null}
              onChoose={(change) => onChoose({ task: row.baseline, other: row.candidate, by: row.metric, change })}
            />
          ))}
        </tbody>
      </table>
    </Scroller>
  );
}

interface RowProps {
  readonly row: MetricCompared;
  /** Whether the row above is of another pair of run tasks. */
  readonly first: boolean;
  /** How far strips of this metric reach. */
  readonly reach: number;
  readonly chosen: Change | null;
  readonly onChoose: (change: Change) => void;
}

function ScoreRow({ row, first, reach, chosen, onChoose }: RowProps) {
  const { difference, low, high } = row;
  const [one, other] = row.values;
  const digits = digitsFor(one, other);
  const tasks = row.baseline === row.candidate ? row.baseline : `${row.baseline} → ${row.candidate}`;
  return (
    <tr className={join(first && styles["first"], chosen !== null && styles["chosen"])}>
      <th scope="row">{first ? tasks : <span className="visually-hidden">{tasks}</span>}</th>
      <td title={row.signature} className={styles["metric"]}>
        {row.metric}
        {row.unit && `, ${row.unit}`} <span title={row.higher_is_better ? "more is better" : "less is better"}>{row.higher_is_better ? "↑" : "↓"}</span>
        {row.differs.length > 0 && <span title={row.differs.join("; ")}> *</span>}
      </td>
      <td className={styles["number"]}>{one === null ? "–" : one.toFixed(digits)}</td>
      <td className={styles["number"]}>{other === null ? "–" : other.toFixed(digits)}</td>
      <td>
        <span className={styles["difference"]}>
          <strong>{difference === null ? "–" : signed(difference, digits)}</strong>
          {low !== null && high !== null ? <span className={styles["soft"]}>{interval(low, high, digits)}</span> : <span className={styles["soft"]}>no interval</span>}
        </span>
        <Strip row={row} reach={reach} />
      </td>
      <td className={styles["number"]}>{row.p === null ? "–" : row.p < 0.001 ? "< 0.001" : row.p.toFixed(3)}</td>
      <td className={styles["number"]} title={`of ${counted(row.documents, "document")}`}>
        {count(row.n)}
      </td>
      <td>
        <Verdict row={row} />
      </td>
      <td className={styles["flips"]}>
        <FlipBar label={`${tasks}, ${row.metric}`} counts={row} chosen={chosen} onChoose={onChoose} />
      </td>
    </tr>
  );
}

function Verdict({ row }: { readonly row: MetricCompared }) {
  const verdict = verdictOf(row);
  if (verdict === "none") return <span className={styles["soft"]}>{whyNone(row)}</span>;
  const { detectable, if_worst, only } = row;
  return (
    <span className={styles["verdict"]}>
      <StateChip state={verdict} />
      {typeof detectable === "number" && <span className={styles["soft"]} title="The test (p) detects a true difference of this size with 80 % power; the interval is more conservative">
          detects ≥ {detectable.toFixed(digitsFor(detectable))}
        </span>}
      {if_worst && if_worst !== verdict && (
        <span className={styles["soft"]} title={`${counted(only[0] + only[1], "sample has", "samples have")} a score in one run only`}>
          {if_worst} if missing scores counted as the worst
        </span>
      )}
    </span>
  );
}

/** The interval on a line with zero in its middle; rows of one metric share its scale. */
function Strip({ row, reach }: { readonly row: MetricCompared; readonly reach: number }) {
  const place = onStrip(row, reach);
  if (!place) return null;
  return (
    <span className={styles["strip"]} aria-hidden="true" data-verdict={verdictOf(row)}>
      <span className={styles["bar"]} style={{ left: `${place.left}%`, width: `${place.width}%` }} />
      <span className={styles["at"]} style={{ left: `${place.at}%` }} />
    </span>
  );
}
