import type { Advice } from "../../api/schema";
import { Coded, CopyButton, Icon, Panel } from "../../ui";
import styles from "./run-task.module.css";

/** Resources to request next time, with the line that would do it. */
export function AdviceList({ advice }: { readonly advice: readonly Advice[] }) {
  return (
    <Panel title="Resources to request next time">
      <ul className={styles.advice}>
        {advice.map((one) => (
          <li key={one.text} data-level={one.level}>
            <Icon name={one.level === "warning" ? "warning" : "note"} label={one.level === "warning" ? "Warning" : "Note"} />
            <div>
              <p><Coded text={one.text} /></p>
              {one.change && (
                <p className={styles.change}>
                  <code>{one.change}</code>
                  <CopyButton text={one.change} />
                </p>
              )}
            </div>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
