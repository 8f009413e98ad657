import { useApi } from "../api";
import type { Failure, LogSource } from "../api/schema";
import { Ago, Empty, FaultBox, Skeleton } from "../ui";
import { bytes } from "../ui/format";
import { logOf } from "./log-of";
import { LogViewer, type LogSearch } from "./LogViewer";
import styles from "./log.module.css";

interface Props {
  readonly experiment: string;
  /** Whether logs may still grow. */
  readonly runs: boolean;
  /** The log chosen; empty: that of a process that failed, else the one that grew last. */
  readonly log: string;
  readonly search: LogSearch;
  readonly onSearch: (change: Partial<LogSearch & { log: string }>) => void;
  /** Null: all of the experiment. */
  readonly runTask: string | null;
  readonly failures: readonly Failure[];
}

const KINDS: Readonly<Record<LogSource["kind"], string>> = { worker: "Worker", job: "Job", engine: "Engine" };

/** Logs of an experiment: which there are, and the one chosen. */
export function Logs({ experiment, runs, log, search, onSearch, runTask, failures }: Props) {
  const { data, error, refetch } = useApi("/experiments/{experiment}/logs", { path: { experiment }, query: runTask === null ? {} : { run_task: runTask } }, runs ? { every: 15_000 } : {});
  if (error && !data) return <FaultBox fault={error} retry={() => void refetch()} />;
  if (!data) return <Skeleton lines={8} />;
  const newest = data.reduce<LogSource | null>((best, one) => (!best || one.updated > best.updated ? one : best), null);
  if (!newest) return <Empty title="No logs yet">Logs appear when the first job starts.</Empty>;
  const failed = new Set(failures.map(logOf));
  const current = data.find((one) => one.id === log) ?? data.find((one) => failed.has(one.id)) ?? newest;
  return (
    <div className={styles.pick}>
      <nav aria-label="Logs">
        <ul className={styles.sources}>
          {data.map((one) => (
            <li key={one.id}>
              <button type="button" className={styles.source} aria-current={one.id === current.id}
                onClick={() => onSearch({ log: one.id, at: null })}>
                <span className={styles.name}>{one.title}</span>
                <span className={styles.about}>{KINDS[one.kind]} · {bytes(one.size)} · <Ago time={one.updated} /></span>
              </button>
            </li>
          ))}
        </ul>
      </nav>
      <LogViewer key={current.id} experiment={experiment} log={current.id} title={current.title} grows={runs}
        atError={failed.has(current.id)} search={search} onSearch={onSearch} />
    </div>
  );
}
