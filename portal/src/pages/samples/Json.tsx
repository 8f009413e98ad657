import { useState } from "react";

import { Button } from "../../ui";
import { counted } from "../../ui/format";
import styles from "./Json.module.css";

/** Levels that are open at first. */
const OPEN = 2;

/** Entries of a level shown at first, and more at a time. */
const SOME = 100;

interface Props {
  readonly value: unknown;
  readonly name?: string;
  readonly level?: number;
}

/** Plain data as a tree that folds; texts are shown as texts, whatever they say. */
export function Json({ value, name, level = 0 }: Props) {
  const label = name === undefined ? null : <span className={styles["name"]}>{name}: </span>;
  if (typeof value !== "object" || value === null) {
    return (
      <div className={styles["leaf"]}>
        {label}
        <span className={styles[typeof value] ?? ""}>{value === undefined ? "–" : JSON.stringify(value)}</span>
      </div>
    );
  }
  const entries = Object.entries(value);
  const size = counted(entries.length, Array.isArray(value) ? "entry" : "field", Array.isArray(value) ? "entries" : "fields");
  if (entries.length === 0) {
    return (
      <div className={styles["leaf"]}>
        {label}
        {Array.isArray(value) ? "[]" : "{}"}
      </div>
    );
  }
  return <Branch label={label} size={size} entries={entries} level={level} />;
}

interface BranchProps {
  readonly label: React.ReactNode;
  readonly size: string;
  readonly entries: readonly (readonly [string, unknown])[];
  readonly level: number;
}

function Branch({ label, size, entries, level }: BranchProps) {
  const [open, setOpen] = useState(level < OPEN && entries.length <= SOME);
  const [shown, setShown] = useState(SOME);
  return (
    <details className={styles["branch"]} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        <span className={styles["size"]}>{size}</span>
      </summary>
      {open && entries.slice(0, shown).map(([key, one]) => <Json key={key} name={key} value={one} level={level + 1} />)}
      {open && entries.length > shown && (
        <Button small kind="quiet" onClick={() => setShown(shown + SOME)}>
          {counted(entries.length - shown, "more", "more")}
        </Button>
      )}
    </details>
  );
}
