import { type Entry, entryOf, listIn, numberIn, shown } from "../../parts/entries";
import { NOT_VALID } from "../../parts/not-valid";
import { Icon, Panel, Scroller } from "../../ui";
import { count, duration, number } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./run-task.module.css";

const LATENCIES: readonly (readonly [name: string, words: string, means: string])[] = [
  ["ttft_ms", "TTFT", "From sending the request to the first text"],
  ["tpot_ms", "TPOT", "Time per output token after the first"],
  ["itl_ms", "ITL", "Time between two tokens"],
  ["e2e_ms", "E2E", "From sending the request to the last text"],
  ["e2e_due_ms", "E2E from due", "From the due time to the last text: the time that a user waits"],
  ["queue_ms", "Queue", "Wait in the client for a free place, where the plan sets a request rate"],
];

const PERCENTILES = ["p50", "p90", "p95", "p99"] as const;

/** Latencies with their intervals, rates, and what casts doubt on them. */
export function Speed({ performance }: { readonly performance: Entry }) {
  const rows = LATENCIES.map(([name, words, means]) => ({ name, words, means, entry: entryOf(performance[name]) })).filter((one) => one.entry !== null);
  const notes = listIn(performance, "notes").map(shown);
  return (
    <Panel title="Latencies and rates">
      <div className={layout.stack}>
        {performance["valid"] === false && (
          <p className={styles.reason}>
            <Icon name="warning" size={14} /> <span>{NOT_VALID}. Answers and scores are valid.</span>
          </p>
        )}
        {/* Scrolls on a narrow window: the keyboard must reach it. */}
        <Scroller className={styles.scroll} label="Latencies">
          <table className={styles.table}>
            <thead>
              <tr>
                <th scope="col">Latency</th>
                <th scope="col" className={styles.end}>Mean</th>
                {PERCENTILES.map((one) => (
                  <th key={one} scope="col" className={styles.end}>
                    {one}
                  </th>
                ))}
                <th scope="col" className={styles.end}>Max</th>
                <th scope="col" className={styles.end}>n</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(({ name, words, means, entry }) => (
                <tr key={name}>
                  <th scope="row" title={means}>
                    {words}
                  </th>
                  <Latency entry={entryOf(entry?.["mean"])} />
                  {PERCENTILES.map((one) => (
                    <Latency key={one} entry={entryOf(entry?.[one])} />
                  ))}
                  <td className={styles.end}>{milliseconds(numberIn(entry, "max"))}</td>
                  <td className={styles.end}>{count(numberIn(entry, "n"))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroller>
        <Rates performance={performance} />
        {notes.length > 0 && (
          <ul className={styles.notes}>
            {notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        )}
      </div>
    </Panel>
  );
}

function milliseconds(value: number | null): string {
  return duration(value === null ? null : value / 1000);
}

function Latency({ entry }: { readonly entry: Entry | null }) {
  const value = numberIn(entry, "value");
  const needs = numberIn(entry, "needs");
  const low = numberIn(entry, "low");
  const high = numberIn(entry, "high");
  if (value === null) {
    return (
      <td className={styles.end}>
        <span className={styles.dim}>{needs === null ? "–" : `needs n ≥ ${count(needs)}`}</span>
      </td>
    );
  }
  return (
    <td className={styles.end}>
      {milliseconds(value)}
      {low !== null && high !== null && (
        <span className={styles.below}>
          {milliseconds(low)} – {milliseconds(high)}
        </span>
      )}
    </td>
  );
}

const RATES: readonly (readonly [string, string])[] = [
  ["answers_per_s", "Answers a second"],
  ["documents_per_s", "Documents a second"],
  ["tokens_per_s", "Output tokens a second"],
  ["good_per_s", "Goodput, answers a second"],
];

function Rates({ performance }: { readonly performance: Entry }) {
  const found = RATES.map(([name, words]) => ({ words, entry: entryOf(performance[name]) })).filter((one) => one.entry !== null);
  if (found.length === 0) return null;
  return (
    <dl className={styles.rates}>
      {found.map(({ words, entry }) => (
        <div key={words}>
          <dt>{words}</dt>
          <dd>
            <strong>{number(numberIn(entry, "value"))}</strong>
            <span className={styles.dim}>
              {number(numberIn(entry, "low"))} – {number(numberIn(entry, "high"))}
            </span>
          </dd>
        </div>
      ))}
    </dl>
  );
}
