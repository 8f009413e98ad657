import { join } from "../../ui/join";
import styles from "./ScoreChip.module.css";
import { toneOf } from "./score";

interface Props {
  readonly value: number | null;
  readonly moreIsBetter: boolean;
}

/** A sample's score: its number, and a shade that says whether that is right, partly right or wrong. */
export function ScoreChip({ value, moreIsBetter }: Props) {
  if (value === null) return <span className={styles["chip"]}>–</span>;
  const tone = toneOf(value, moreIsBetter);
  const text = Number.isInteger(value) ? String(value) : value.toFixed(2);
  return (
    <span className={join(styles["chip"], styles[tone])} title={tone}>
      {text}
    </span>
  );
}
