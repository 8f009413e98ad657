import { type KeyboardEvent, type ReactNode, useId, useLayoutEffect, useRef } from "react";
import styles from "./Tabs.module.css";

export interface Tab<Id extends string> {
  readonly id: Id;
  readonly label: string;
  readonly count?: number | undefined;
}

interface Props<Id extends string> {
  readonly label: string;
  readonly tabs: readonly Tab<Id>[];
  readonly current: Id;
  readonly onChange: (id: Id) => void;
  readonly children: ReactNode;
}

/** Panels of which one is shown; arrows move between them. */
export function Tabs<Id extends string>({ label, tabs, current, onChange, children }: Props<Id>) {
  const base = useId();
  const list = useRef<HTMLDivElement>(null);
  const words = tabs.map(({ label, count }) => `${label} ${count ?? ""}`).join("\n");
  // Where not all tabs fit, the chosen one is among those that are seen. The page itself does not scroll.
  useLayoutEffect(() => {
    const row = list.current;
    const tab = row?.querySelector<HTMLElement>(`[data-tab="${current}"]`);
    if (!row || !tab) return undefined;
    const show = () => {
      const past = tab.offsetLeft + tab.offsetWidth - row.clientWidth;
      row.scrollLeft = Math.min(Math.max(row.scrollLeft, past), tab.offsetLeft);
    };
    show();
    const observer = new ResizeObserver(show); // a phone is turned, a window gets narrower
    observer.observe(row);
    return () => observer.disconnect();
  }, [current, words]);
  const move = (event: KeyboardEvent) => {
    const place = tabs.findIndex((tab) => tab.id === current);
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const found = tabs[(to + tabs.length) % tabs.length];
    if (!found) return;
    onChange(found.id);
    list.current?.querySelector<HTMLElement>(`[data-tab="${found.id}"]`)?.focus();
  };
  return (
    <div className={styles.whole}>
      <div role="tablist" aria-label={label} className={styles.list} ref={list} tabIndex={-1} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${base}-${tab.id}`}
            data-tab={tab.id}
            aria-selected={tab.id === current}
            aria-controls={`${base}-panel`}
            tabIndex={tab.id === current ? 0 : -1}
            className={styles.tab}
            onClick={() => onChange(tab.id)}
          >
            {tab.label}
            {tab.count !== undefined && <span className={styles.count}>{tab.count}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${base}-panel`} aria-labelledby={`${base}-${current}`} className={styles.panel}>
        {children}
      </div>
    </div>
  );
}
