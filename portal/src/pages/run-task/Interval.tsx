import { number } from "../../ui/format";
import styles from "./run-task.module.css";

interface Props {
  readonly value: number | null;
  readonly low: number | null;
  readonly high: number | null;
  /** Ends of the scale; from 0 to 1 unless a value lies beyond. */
  readonly scale?: readonly [number, number];
}

const WIDTH = 96;

/** An interval in figures, and drawn where it lies between 0 and 1. */
export function Interval({ value, low, high, scale = [0, 1] }: Props) {
  if (low === null || high === null) return <span className={styles.dim}>none</span>;
  const [from, to] = scale;
  const fits = low >= from && high <= to;
  const x = (at: number) => 1 + ((at - from) / (to - from)) * (WIDTH - 2);
  return (
    <span className={styles.interval}>
      {fits && (
        <svg width={WIDTH} height={14} viewBox={`0 0 ${WIDTH} 14`} aria-hidden className={styles.whisker}>
          <path d={`M1 7H${WIDTH - 1}`} className={styles.axis} />
          <path d={`M${x(low)} 7H${x(high)}M${x(low)} 3.500V10.500M${x(high)} 3.500V10.500`} className={styles.range} />
          {value !== null && <circle cx={x(value)} cy={7} r={3} className={styles.point} />}
        </svg>
      )}
      <span>
        {number(low)} to {number(high)}
      </span>
    </span>
  );
}
