import type { ReactNode } from "react";
import { ago } from "./format";
import { Icon } from "./Icon";
import { useNow } from "./times";
import styles from "./Stale.module.css";

interface Props {
  /** Since when it is not known to be true any more, seconds since the epoch; null: it is. */
  readonly since: number | null;
  readonly children: ReactNode;
}

/** What is old is greyed, and says its age. */
export function Stale({ since, children }: Props) {
  const now = useNow();
  // The same elements in both cases: what is inside keeps its focus, scroll position and state.
  return (
    <div className={since === null ? styles.fresh : styles.stale}>
      {since !== null && (
        <p className={styles.age}>
          <Icon name="clock" size={13} /> As of {ago(Math.max(0, now - since))}
        </p>
      )}
      <div className={since === null ? styles.fresh : styles.old}>{children}</div>
    </div>
  );
}
