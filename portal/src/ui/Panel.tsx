import { type ReactNode, useId } from "react";
import styles from "./Panel.module.css";

interface Props {
  readonly title: string;
  readonly actions?: ReactNode;
  /** Without padding: for a table. */
  readonly bare?: boolean;
  readonly children: ReactNode;
}

/** A section of a page with its heading. */
export function Panel({ title, actions, bare, children }: Props) {
  const head = useId();
  return (
    <section className={styles.panel} aria-labelledby={head}>
      <header className={styles.head}>
        <h2 id={head}>{title}</h2>
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      <div className={bare ? styles.bare : styles.body}>{children}</div>
    </section>
  );
}
