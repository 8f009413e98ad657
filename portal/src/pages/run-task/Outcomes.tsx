import { Link } from "@tanstack/react-router";
import type { RunTaskDetail } from "../../api/schema";
import { numberIn, textIn } from "../../parts/entries";
import { OutcomeChip, Panel } from "../../ui";
import { DEFINITIONS } from "../../ui/counts";
import { count, counted, percent } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./run-task.module.css";

const COUNTS = ["asked", "responded", "ok", "unreadable", "failed", "skipped"] as const;

/** What became of the samples, how requests ended, and why answers cannot be read. */
export function Outcomes({ detail }: { readonly detail: RunTaskDetail }) {
  const { row, outcomes, invalid_reasons: reasons, wrong } = detail;
  const kinds = Object.entries(detail.mistakes);
  const all = Object.values(outcomes).reduce((sum, one) => sum + one, 0);
  const params = { experiment: row.experiment, task: row.name };
  return (
    <Panel title="Samples by outcome">
      <div className={layout.stack}>
        {row.counts && (
          <dl className={styles.counts}>
            {COUNTS.filter((name) => name !== "skipped" || row.counts?.skipped).map((name) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd className={styles.amount}>{count(row.counts?.[name])}</dd>
                <dd className={styles.dim}>{DEFINITIONS[name]}</dd>
              </div>
            ))}
          </dl>
        )}
        <h3>How requests ended</h3>
        <ul className={styles.outcomes}>
          {Object.entries(outcomes)
            .sort(([, one], [, other]) => other - one)
            .map(([outcome, amount]) => (
              <li key={outcome}>
                <Link to="/e/$experiment/t/$task/samples" params={params} search={{ outcome }}>
                  <OutcomeChip outcome={outcome} />
                </Link>
                <span className={styles.amount}>{count(amount)}</span>
                <span className={styles.dim}>{percent(all > 0 ? amount / all : 0, 1)}</span>
              </li>
            ))}
        </ul>
        {kinds.length > 0 && (
          <>
            <h3>Mistakes in {counted(wrong ?? 0, "wrong sample")}</h3>
            <ul className={styles.outcomes}>
              {kinds.map(([mistake, amount]) => (
                <li key={mistake}>
                  <Link to="/e/$experiment/t/$task/samples" params={params} search={{ mistake }}>
                    {mistake}
                  </Link>
                  <span className={styles.amount}>{count(amount)}</span>
                  <span className={styles.dim}>{percent(amount / (wrong || 1), 1)}</span>
                </li>
              ))}
              {detail.unnamed > 0 && (
                <li className={styles.dim}>
                  <span>no rule applies</span>
                  <span className={styles.amount}>{count(detail.unnamed)}</span>
                  <span>{percent(detail.unnamed / (wrong || 1), 1)}</span>
                </li>
              )}
            </ul>
          </>
        )}
        {reasons.length > 0 && (
          <>
            <h3>Why answers are unreadable</h3>
            <ul className={styles.reasons}>
              {reasons.map((one) => (
                <li key={reasonOf(one)}>
                  <span className={styles.amount}>{count(numberIn(one, "count"))}×</span>
                  <Link to="/e/$experiment/t/$task/samples" params={params} search={{ reason: reasonOf(one) }}>
                    {reasonOf(one)}
                  </Link>
                </li>
              ))}
            </ul>
          </>
        )}
      </div>
    </Panel>
  );
}

function reasonOf(entry: RunTaskDetail["invalid_reasons"][number]): string {
  return textIn(entry, "reason") || textIn(entry, "what") || textIn(entry, "text") || "no reason given";
}
