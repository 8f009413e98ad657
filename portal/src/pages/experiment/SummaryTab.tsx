import { Link } from "@tanstack/react-router";
import type { ExperimentDetail } from "../../api/schema";
import { type Entry, entriesOf, listIn, numberIn, shown, textIn } from "../../parts/entries";
import { Facts } from "../../parts/Facts";
import { Empty, Markdown, Panel, StateChip } from "../../ui";
import { duration, number, signed } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./experiment.module.css";

/** What came out, in sentences; what a gate said; what it took. */
export function SummaryTab({ detail }: { readonly detail: ExperimentDetail }) {
  const { summary, verdict, usage, row } = detail;
  return (
    <div className={layout.stack}>
      {summary.length > 0 ? (
        <Panel title="Results">
          <Markdown blocks={summary} />
        </Panel>
      ) : (
        <Empty title="There is no summary yet">The summary is written with the report, after the last answer is scored.</Empty>
      )}
      {verdict && <Gate verdict={verdict} />}
      <Panel title="Resources used">
        <Facts
          label="Resources used"
          facts={[
            { label: "GPU-hours", value: number(usage.gpu_hours ?? row.gpu_hours), note: "allocated" },
            { label: "Used", value: number(usage.gpu_hours_used), note: "with requests in flight whose answers count" },
            { label: "Wasted", value: number(usage.gpu_hours_wasted), note: "starting, loading, idling, lost work" },
            { label: "Longest wait", value: duration(usage.queue_wait), note: "of a job in Slurm's queue" },
          ]}
        />
      </Panel>
    </div>
  );
}

const FOUND: Readonly<Record<string, string>> = { pass: "ok", fail: "failed", inconclusive: "inconclusive" };

function Gate({ verdict }: { readonly verdict: Entry }) {
  const baseline = textIn(verdict, "baseline");
  const checks = entriesOf(verdict["checks"]);
  return (
    <Panel title="Verdict of the gate" actions={<StateChip state={textIn(verdict, "verdict")} />}>
      <div className={layout.stack}>
        <p>
          Against{" "}
          <Link to="/e/$experiment" params={{ experiment: baseline }}>
            {baseline}
          </Link>
          , policy {textIn(verdict, "policy")}.{" "}
          <Link to="/compare" search={{ runs: [baseline, textIn(verdict, "candidate")] }}>
            Compare them
          </Link>
        </p>
        <ul>
          {listIn(verdict, "reasons").map((reason) => (
            <li key={shown(reason)}>{shown(reason)}</li>
          ))}
        </ul>
        {checks.length > 0 && <Checks checks={checks} />}
      </div>
    </Panel>
  );
}

function Checks({ checks }: { readonly checks: readonly Entry[] }) {
  const apart = (check: Entry) => (["speed", "memory"].includes(textIn(check, "kind")) ? percentSigned(numberIn(check, "difference")) : signed(numberIn(check, "difference")));
  return (
    // Scrolls on a narrow window: the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={styles.scroll} tabIndex={0} role="region" aria-label="Checks of the gate">
      <table className={styles.plain}>
        <thead>
          <tr>
            <th scope="col">Run task</th>
            <th scope="col">Metric or figure</th>
            <th scope="col">Result</th>
            <th scope="col" className={styles.end}>Baseline</th>
            <th scope="col" className={styles.end}>Candidate</th>
            <th scope="col" className={styles.end}>Difference</th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {checks.map((check) => (
            <tr key={`${textIn(check, "run_task")} ${textIn(check, "what")}`}>
              <td>{textIn(check, "run_task") || "all"}</td>
              <td>
                {textIn(check, "what")} <span className={styles.dim}>{textIn(check, "level")}</span>
              </td>
              <td>
                <StateChip state={FOUND[textIn(check, "verdict")] ?? textIn(check, "verdict")} quiet />
              </td>
              <td className={styles.end}>{number(numberIn(check, "baseline"))}</td>
              <td className={styles.end}>{number(numberIn(check, "candidate"))}</td>
              <td className={styles.end}>{apart(check)}</td>
              <td>{textIn(check, "why")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function percentSigned(share: number | null): string {
  return share === null ? "–" : `${signed(share * 100)} %`;
}
