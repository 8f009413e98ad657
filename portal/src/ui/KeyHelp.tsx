import { useState } from "react";
import { Dialog } from "./Dialog";
import { MAC, useHotkeys, useKeyGroups } from "./hotkeys";
import styles from "./KeyHelp.module.css";

const NAMES: Readonly<Record<string, string>> = {
  mod: MAC ? "⌘" : "Ctrl",
  shift: "Shift",
  alt: "Alt",
  ArrowUp: "↑",
  ArrowDown: "↓",
  ArrowLeft: "←",
  ArrowRight: "→",
  Escape: "Esc",
  " ": "Space",
};

/** A key for people. */
export function KeyName({ name }: { readonly name: string }) {
  const parts = name === "+" ? ["+"] : name.split("+");
  return (
    <span className={styles.keys}>
      {parts.map((part) => (
        <kbd key={part}>{NAMES[part] ?? (part.length === 1 ? part.toUpperCase() : part)}</kbd>
      ))}
    </span>
  );
}

/** `?` shows all keys that work here. */
export function KeyHelp() {
  const [open, setOpen] = useState(false);
  const groups = useKeyGroups();
  useHotkeys({ "?": ["show the keys", () => setOpen(true)] }, "Everywhere");
  const titles = [...new Set(groups.map((group) => group.title))];
  return (
    <Dialog open={open} title="Keys" onClose={() => setOpen(false)}>
      {titles.map((title) => (
        <section key={title} className={styles.group}>
          <h3>{title}</h3>
          <dl className={styles.list}>
            {groups
              .filter((group) => group.title === title)
              .flatMap((group) => Object.entries(group.keys))
              .map(([key, [help]]) => (
                <div key={key}>
                  <dt>
                    <KeyName name={key} />
                  </dt>
                  <dd>{help}</dd>
                </div>
              ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
