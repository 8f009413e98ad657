import type { ReactNode } from "react";
import styles from "./Empty.module.css";

interface Props {
  readonly title: string;
  /** What can be done now. */
  readonly next?: ReactNode;
  readonly children?: ReactNode;
}

/** There is nothing here: why, and what to do next. */
export function Empty({ title, next, children }: Props) {
  return (
    <div className={styles.empty}>
      <p className={styles.title}>{title}</p>
      {children && <div className={styles.text}>{children}</div>}
      {next && <div className={styles.next}>{next}</div>}
    </div>
  );
}
