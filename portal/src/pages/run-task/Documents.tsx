import type { Entry } from "../../parts/entries";
import { CopyButton, Panel } from "../../ui";
import styles from "./run-task.module.css";

const WORDS: Readonly<Record<string, string>> = { model: "Model", dataset: "Dataset", prompt: "Prompt", ml_task: "ML task", resources: "Resources", task: "Run task" };

/** The documents as they were resolved; secrets stand as references. */
export function Documents({ documents }: { readonly documents: Entry }) {
  return (
    <Panel title="As resolved">
      <div className={styles.documents}>
        {Object.entries(documents).map(([name, value]) => {
          const text = JSON.stringify(value, null, 2);
          return (
            <details key={name} className={styles.document}>
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
