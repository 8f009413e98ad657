import { Link } from "@tanstack/react-router";
import { isBundle } from "../../api/bundle";
import type { ExperimentDetail, ExperimentRow } from "../../api/schema";
import { useSession } from "../../app/session";
import { Commands } from "../../parts/Commands";
import { Facts } from "../../parts/Facts";
import { Ago, Bar, Coded, CopyButton, Icon, Moment, Popover, ScoreText, StateChip } from "../../ui";
import { countsSentence, DEFINITIONS, samplesDone } from "../../ui/counts";
import { count, counted, duration, number, percent } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import { Actions } from "./Actions";
import { commandsOf } from "./commands";
import styles from "./experiment.module.css";

/** Plan, state, the sentence, and figures at a glance. */
export function Header({ detail }: { readonly detail: ExperimentDetail }) {
  const { row, status, sentence } = detail;
  const { session } = useSession();
  const needs = status?.needs;
  return (
    <header className={styles.header}>
      <div className={layout.bar}>
        <div className={styles.names}>
          <h1 className={layout.wrap}>{row.plan}</h1>
          <StateChip state={row.state} />
          {row.verdict && <StateChip state={row.verdict} />}
          {row.baselines.map((name) => (
            <span key={name} className={styles.tag} title="This experiment is the baseline with this name">
              <Icon name="flag" size={12} /> {name}
            </span>
          ))}
        </div>
        <div className={layout.row}>
          {session?.may_submit && !isBundle() && <Actions row={row} />}
          <Popover label="Commands" icon="log" align="end">
            {() => (
              <div className={styles.commands}>
                <p className={layout.soft}>Commands for a shell on the cluster{session?.may_submit ? "" : "; started with --allow-submit, the portal runs some of them"}:</p>
                <Commands commands={commandsOf(row)} />
              </div>
            )}
          </Popover>
        </div>
      </div>
      <p className={styles.sentence}><Coded text={sentence} /></p>
      {needs && (
        <p className={styles.needs}>
          <Icon name="warning" size={14} /> <span><Coded text={needs} /></span>
        </p>
      )}
      <p className={styles.about}>
        <span className={styles.id}>
          <code>{row.id}</code>
          <CopyButton text={row.id} />
        </span>
        <span>
          submitted <Moment time={row.created} /> by {row.owner}
        </span>
        <span>
          last changed <Ago time={row.updated} />
        </span>
      </p>
      <Figures detail={detail} />
    </header>
  );
}

/** States in which answers may come. */
const MOVING: readonly string[] = ["running", "pending", "stalled", "submitting"];

function Figures({ detail }: { readonly detail: ExperimentDetail }) {
  const { row, status, usage } = detail;
  const parts = Object.entries(row.tasks_by_state).map(([state, amount]) => ({ state, count: amount }));
  const eta = row.eta ?? status?.eta?.text ?? null;
  const used = typeof usage.gpu_hours === "number" && usage.gpu_hours > 0 && typeof usage.gpu_hours_used === "number" ? usage.gpu_hours_used / usage.gpu_hours : null;
  const going = MOVING.includes(row.state) && row.answered < row.samples;
  return (
    <Facts
      label="At a glance"
      facts={[
        {
          label: "Samples",
          value: <Bar value={row.answered} max={row.samples} label="Samples done" />,
          note: row.counts ? countsSentence(row.counts) : samplesDone(row),
          wide: true,
        },
        {
          label: "Run tasks",
          value: <Bar value={row.tasks_by_state["done"] ?? 0} max={row.run_tasks} parts={parts} label="Run tasks by state" bare />,
          note: parts.map((one) => `${count(one.count)} ${one.state}`).join(" · ") || "none",
          wide: true,
        },
        going ? { label: "Last answer", value: eta ?? "not known yet", note: eta === null ? "no worker runs yet" : status?.eta?.waits ? "plus the wait for Slurm" : "80 % interval", wide: true } : null,
        going ? { label: "Answers / s", value: number(row.rate), note: "last minutes" } : null,
        row.counts ? { label: "Coverage", value: percent(row.counts.coverage, 1), note: DEFINITIONS.coverage } : null,
        row.score ? { label: row.score.metric, value: <ScoreText score={row.score} interval />, note: scoredNote(row), wide: true } : null,
        { label: "GPU-hours", value: number(usage.gpu_hours ?? row.gpu_hours), note: used === null ? "allocated" : `${percent(used)} with requests in flight` },
        row.failures > 0 ? { label: "Failures", value: <Link to="/e/$experiment" params={{ experiment: row.id }} search={{}}>{counted(row.failures, "cause")}</Link>, note: "see run tasks" } : null,
        status?.spending ? spentFact(status.spending.text) : null,
        typeof usage.queue_wait === "number" ? { label: "Longest wait", value: duration(usage.queue_wait), note: "of a job in Slurm's queue" } : null,
      ]}
    />
  );
}

/** `31 of 500 requests, 25,389 tokens, 0.12 of 5 USD`: the last kind matters most. */
function spentFact(text: string) {
  const kinds = text.split(", ");
  return { label: "Spent", value: kinds.at(-1), note: kinds.slice(0, -1).join(", "), wide: true };
}

/** What the leading score is made of: never a mean that hides run tasks without a value. */
function scoredNote(row: ExperimentRow): string {
  const n = `n = ${count(row.score?.n)}`;
  if (row.run_tasks === 1) return n;
  const of = row.scored < row.run_tasks ? `${count(row.scored)} of ${counted(row.run_tasks, "run task")}; the others have no value` : counted(row.run_tasks, "run task");
  return `mean of ${of}; ${n}`;
}
