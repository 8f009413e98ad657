import { progress } from "./format";
import { lookOf } from "./states";
import styles from "./Bar.module.css";

interface Props {
  readonly value: number;
  readonly max: number;
  /** What is being done, for those who do not see the bar. */
  readonly label: string;
  /** Parts by state instead of one piece. */
  readonly parts?: readonly { readonly state: string; readonly count: number }[];
  /** Without the percentage beside it. */
  readonly bare?: boolean;
}

/** How far something is. */
export function Bar({ value, max, label, parts, bare }: Props) {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0;
  const all = parts?.reduce((sum, part) => sum + part.count, 0) ?? 0;
  return (
    <span className={styles.whole}>
      <span className={styles.bar} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={max} aria-valuenow={value} aria-valuetext={progress(share)}>
        {parts && all > 0 ? (
          parts.map(({ state, count }) => (
            <span key={state} className={styles.part} data-tone={lookOf(state).tone} style={{ width: `${(100 * count) / all}%` }} title={`${lookOf(state).word}: ${count}`} />
          ))
        ) : (
          <span className={styles.done} style={{ transform: `scaleX(${share})` }} />
        )}
      </span>
      {!bare && (
        <span className={styles.share} aria-hidden>
          {progress(share)}
        </span>
      )}
    </span>
  );
}
