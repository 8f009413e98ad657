import type { Entry } from "../../parts/entries";
import { CopyButton, Panel } from "../../ui";
import styles from "./run-task.module.css";

const WORDS: Readonly<Record<string, string>> = { model: "Model", dataset: "Dataset", prompt: "Prompt", ml_task: "ML task", resources: "Resources", task: "Run task" };

/** The definitions as they were resolved; secrets are references. */
export function Definitions({ definitions }: { readonly definitions: Entry }) {
  return (
    <Panel title="Resolved definitions">
      <div className={styles.definitions}>
        {Object.entries(definitions).map(([name, value]) => {
          const text = JSON.stringify(value, null, 2);
          return (
            <details key={name} className={styles.definition}>
              <summary>{WORDS[name] ?? name}</summary>
              <div className={styles.code}>
                {/* Scrolls: the keyboard must reach it. */}
                {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
                <pre tabIndex={0} aria-label={WORDS[name] ?? name}>
                  {text}
                </pre>
                <CopyButton text={text} />
              </div>
            </details>
          );
        })}
      </div>
    </Panel>
  );
}
