import { count } from "../../ui/format";
import { join } from "../../ui/join";
import styles from "./FlipBar.module.css";
import { type Counts, described, segments, WORDS } from "./flips";
import type { Change } from "./search";

interface Props {
  /** What it is of, for those who do not see it. */
  readonly label: string;
  readonly counts: Counts;
  readonly chosen: Change | null;
  readonly onChoose: (change: Change) => void;
  /** With words and numbers beside each other. */
  readonly large?: boolean;
}

/** Lost, won and tied samples: a bar, and each part a button that lists its samples. */
export function FlipBar({ label, counts, chosen, onChoose, large = false }: Props) {
  const bar = segments(counts);
  if (bar.length === 0) return <span className={styles["none"]}>no pairs</span>;
  return (
    <div className={join(styles["bar"], large && styles["large"])} role="group" aria-label={`${label}: ${described(counts)}`}>
      {bar.map(({ change, count: amount, width }) => (
          <button
            key={change}
            type="button"
            className={styles["segment"]}
            data-change={change}
            aria-pressed={chosen === change}
            aria-label={`${WORDS[change]} ${count(amount)}: list`}
            title={`${count(amount)} ${WORDS[change]}`}
            style={{ flexGrow: width }}
            onClick={(event) => {
              event.stopPropagation();
              onChoose(change);
            }}
          >
            {large && <span className={styles["word"]}>{WORDS[change]}</span>} {count(amount)}
          </button>
      ))}
    </div>
  );
}
