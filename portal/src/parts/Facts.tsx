import type { ReactNode } from "react";
import styles from "./facts.module.css";

export interface Fact {
  readonly label: string;
  readonly value: ReactNode;
  /** A line below, in small. */
  readonly note?: ReactNode;
  /** Takes the room of two. */
  readonly wide?: boolean;
}

/** Figures that are read at a glance: a label, a value, what belongs to it. */
export function Facts({ facts, label }: { readonly facts: readonly (Fact | null)[]; readonly label: string }) {
  return (
    <dl className={styles.facts} aria-label={label}>
      {facts.filter((one) => one !== null).map((one) => (
        <div key={one.label} className={one.wide ? styles.wide : styles.fact}>
          <dt className={styles.label}>{one.label}</dt>
          <dd className={styles.value}>{one.value}</dd>
          {one.note ? <dd className={styles.note}>{one.note}</dd> : null}
        </div>
      ))}
    </dl>
  );
}
