import { useSyncExternalStore } from "react";
import { Button } from "./Button";
import styles from "./toast.module.css";

interface Toast {
  readonly text: string;
  /** Takes back what was done. */
  readonly undo?: () => void;
}

const SHOWN = 5000;
let current: Toast | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

function show(next: Toast | null): void {
  clearTimeout(timer);
  current = next;
  if (next) timer = setTimeout(() => show(null), next.undo ? 2 * SHOWN : SHOWN);
  for (const listener of listeners) listener();
}

/** Says in passing what was done. */
export function toast(what: string | Toast): void {
  show(typeof what === "string" ? { text: what } : what);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Where toasts are shown: once, in the frame. */
export function Toasts() {
  const found = useSyncExternalStore(subscribe, () => current);
  const undo = found?.undo;
  return (
    <div role="status" className={styles.place}>
      {found && (
        <div className={styles.toast}>
          <span>{found.text}</span>
          {undo && (
            <Button
              small
              onClick={() => {
                undo();
                show(null);
              }}
            >
              Undo
            </Button>
          )}
        </div>
      )}
    </div>
  );
}
