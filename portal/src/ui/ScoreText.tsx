import type { Score } from "../api/schema";
import { count, counted, number, signed } from "./format";
import styles from "./ScoreText.module.css";

interface Props {
  readonly score: Score | null | undefined;
  /** Shows the interval too; the title always has it. */
  readonly interval?: boolean;
  /** Difference to a baseline. */
  readonly delta?: number | null;
}

/** A metric's value; every number says its interval and n. */
export function ScoreText({ score, interval, delta }: Props) {
  if (!score) return <span className={styles.none}>–</span>;
  const { metric, value, low, high, n, documents, unit, standing } = score;
  const known = typeof low === "number" && typeof high === "number";
  const told = [
    `${metric} ${number(value)}${unit ? ` ${unit}` : ""}${standing ? `, ${standing}` : ""}`,
    known ? `95 % interval ${number(low)} to ${number(high)}` : "no interval",
    `n = ${count(n)}${documents ? ` from ${counted(documents, "document")}` : ""}`,
  ].join(", ");
  return (
    <span className={styles.score} title={told}>
      <strong>{number(value)}</strong>
      {unit && <span className={styles.unit}>{unit}</span>}
      {standing && <span className={styles.unit}>{standing}</span>}
      {interval && known && (
        <span className={styles.interval}>
          {number(low)}…{number(high)}
        </span>
      )}
      {delta !== undefined && delta !== null && <ScoreChange score={score} change={delta} />}
      <span className="visually-hidden">{told}</span>
    </span>
  );
}

interface ChangeProps {
  readonly score: Pick<Score, "higher_is_better">;
  /** Difference to a baseline. */
  readonly change: number;
}

/** The difference of a score to a baseline's; its colour says its direction, not its significance. */
export function ScoreChange({ score, change }: ChangeProps) {
  return (
    <span className={styles.delta} data-tone={change === 0 ? "away" : change > 0 === score.higher_is_better ? "good" : "bad"}>
      {signed(change)}
    </span>
  );
}
