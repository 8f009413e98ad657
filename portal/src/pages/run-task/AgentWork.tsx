import { type Entry, entryOf, numberIn } from "../../parts/entries";
import { Panel, Scroller } from "../../ui";
import { count, duration, number } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./run-task.module.css";

type Show = (value: number | null) => string;

const milliseconds: Show = (value) => duration(value === null ? null : value / 1000);

const SPREADS: readonly (readonly [name: string, words: string, show: Show])[] = [
  ["turns_each", "Turns", count],
  ["calls_each", "Tool calls", count],
  ["tokens_each", "Tokens of answers", count],
  ["prompt_tokens_each", "Prompt tokens", count],
  ["think_s", "Time of the model", duration],
  ["tool_s", "Time of tools", duration],
  ["sync_s", "Waiting for the disk", duration],
  ["ttft_ms", "TTFT of a turn", milliseconds],
];

/** How agents worked on the samples: exits, calls by tool, and what a sample took. */
export function AgentWork({ work }: { readonly work: Entry }) {
  const spreads = SPREADS.map(([name, words, show]) => ({ name, words, show, entry: entryOf(work[name]) })).filter((one) => one.entry !== null);
  const plans = entryOf(work["plans"]);
  const rate = numberIn(entryOf(work["samples_per_s"]), "value");
  return (
    <Panel title="Work of agents">
      <div className={layout.stack} data-testid="agent-work">
        {/* Scrolls on a narrow window: the keyboard must reach it. */}
        <Scroller className={styles.scroll} label="Of a sample">
          <table className={styles.table}>
            <thead>
              <tr>
                <th scope="col">Of a sample</th>
                {["Mean", "p50", "p95", "Max", "n"].map((one) => (
                  <th key={one} scope="col" className={styles.end}>
                    {one}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {spreads.map(({ name, words, show, entry }) => (
                <tr key={name}>
                  <th scope="row">{words}</th>
                  <td className={styles.end}>{show === count ? number(part(entry, "mean")) : show(part(entry, "mean"))}</td>
                  <td className={styles.end}>{show(part(entry, "p50"))}</td>
                  <td className={styles.end}>{show(part(entry, "p95"))}</td>
                  <td className={styles.end}>{show(numberIn(entry, "max"))}</td>
                  <td className={styles.end}>{count(numberIn(entry, "n"))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroller>
        <Counts title="How the work ended, samples" counts={entryOf(work["exits"])} />
        <Counts title="Calls by tool" counts={entryOf(work["calls"])} />
        <Counts title="Calls without a result, by cause" counts={entryOf(work["failed"])} />
        <Counts
          title="In all"
          counts={{
            samples: work["samples"],
            "prompt tokens": work["prompt_tokens"],
            "wasted calls": work["wasted"],
            ...(plans ? { "plan steps": plans["steps"], "plan steps done": plans["done"] } : {}),
          }}
        />
        {rate !== null && <p className={styles.dim}>{number(rate)} samples a second of one engine</p>}
      </div>
    </Panel>
  );
}

function part(entry: Entry | null, name: string): number | null {
  return numberIn(entryOf(entry?.[name]), "value");
}

function Counts({ title, counts }: { readonly title: string; readonly counts: Entry | null }) {
  const found = Object.keys(counts ?? {});
  if (found.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3 className={styles.dim}>{title}</h3>
      <dl className={styles.rates}>
        {found.map((name) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <strong>{count(numberIn(counts, name))}</strong>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
