import { Link } from "@tanstack/react-router";
import type { ClusterJob } from "../../api/schema";
import { Ago, type Column, Empty, StateChip, Table, useNow } from "../../ui";
import { count, counted, duration } from "../../ui/format";
import { waitsOf } from "./nodes";
import layout from "../../ui/layout.module.css";
import styles from "./cluster.module.css";

const COLUMNS: readonly Column<ClusterJob>[] = [
  { id: "id", head: "Job", width: 110, cell: (job) => <span className={layout.mono}>{job.id}</span> },
  { id: "state", head: "State", width: 150, cell: (job) => <StateChip state={job.state.toLowerCase()} {...(job.tasks > 1 ? { note: counted(job.tasks, "task") } : {})} /> },
  {
    id: "experiment",
    head: "Experiment",
    width: 200,
    grow: true,
    cell: (job) =>
      job.experiment ? (
        <Link to="/e/$experiment" params={{ experiment: job.experiment }} title={job.name}>
          {job.experiment}
        </Link>
      ) : (
        <span title="Not an experiment of this home">{job.name}</span>
      ),
  },
  { id: "partition", head: "Partition", width: 100, cell: (job) => job.partition || "–" },
  { id: "gpus", head: "GPUs", width: 90, align: "end", cell: (job) => (job.gpus > 0 ? `${count(job.gpus)}${job.gpu_type ? ` ${job.gpu_type}` : ""}` : "–") },
  { id: "where", head: "Node, or reason to wait", width: 320, grow: true, cell: (job) => <Where job={job} /> },
  { id: "left", head: "Time", width: 120, title: "Time left, or until its earliest start", align: "end", cell: (job) => <Left job={job} /> },
  { id: "submitted", head: "Submitted", width: 100, align: "end", optional: true, cell: (job) => <Ago time={job.submitted ?? 0} /> },
];

/** The user's jobs; those that run first. */
export function JobTable({ jobs }: { readonly jobs: readonly ClusterJob[] }) {
  const empty = <Empty title="None of your jobs runs or waits">The jobs of a submitted plan appear here.</Empty>;
  return (
    <>
      <Table label="Your jobs" rows={jobs} columns={COLUMNS} rowKey={(job) => `${job.id} ${job.state}`} height="fit" empty={empty} />
      <Waits jobs={jobs} />
    </>
  );
}

function Where({ job }: { readonly job: ClusterJob }) {
  if (job.why) return <span className={styles.why} title={job.why}>{job.why}</span>;
  const again = job.restarts > 0 ? `, requeued ${counted(job.restarts, "time")}` : "";
  return <span className={styles.why}>{`${job.node || "–"}${again}`}</span>;
}

function Left({ job }: { readonly job: ClusterJob }) {
  const now = useNow();
  const start = job.started ?? 0;
  const end = job.ends ?? null;
  if (job.state !== "RUNNING") return start > now ? <>{`starts in ${duration(start - now)}`}</> : <>–</>;
  if (end === null) return <>no limit</>;
  return end > now ? <>{`${duration(end - now)} left`}</> : <>time limit reached</>;
}

/** Why jobs wait, in full: the table has no room for it. */
function Waits({ jobs }: { readonly jobs: readonly ClusterJob[] }) {
  const waiting = jobs.filter((job) => job.why);
  if (waiting.length === 0) return null;
  return (
    <section className={styles.waits} aria-label="Why jobs wait">
      <h3>Why jobs wait</h3>
      <ul>
        {waitsOf(waiting).map(({ why, ids }) => (
          <li key={why}>
            <span className={layout.mono}>{ids}</span> {why}
          </li>
        ))}
      </ul>
    </section>
  );
}
