import { useMemo } from "react";
import { Empty, FaultBox, Select, Skeleton, Strips } from "../ui";
import { counted } from "../ui/format";
import layout from "../ui/layout.module.css";
import { useResources } from "./use-resources";

interface Props {
  readonly experiment: string;
  /** Null: of all workers of the experiment. */
  readonly runTask: string | null;
  readonly runs: boolean;
  /** The worker shown; empty: all. */
  readonly worker: string;
  readonly onWorker: (worker: string) => void;
}

/** Workers whose strips are drawn at once. */
const MOST = 8;

/** GPU, memory and CPU over time, a strip a figure and device. */
export function ResourceStrips({ experiment, runTask, runs, worker, onWorker }: Props) {
  const { data, error, refetch } = useResources(experiment, runTask, runs);
  const workers = useMemo(() => [...new Set(data?.strips.map((one) => one.worker))], [data]);
  const shown = useMemo(() => {
    if (!data) return null;
    const wanted = workers.includes(worker) ? new Set([worker]) : new Set(workers.slice(0, MOST));
    return { ...data, strips: data.strips.filter((one) => wanted.has(one.worker)) };
  }, [data, workers, worker]);
  if (error && !data) return <FaultBox fault={error} retry={() => void refetch()} />;
  if (!shown) return <Skeleton lines={10} />;
  if (shown.strips.length === 0 && data?.partial) return <Skeleton lines={10} />;
  if (shown.strips.length === 0)
    return <Empty title="Nothing was measured yet">The monitor of each worker writes a reading every few seconds while a job runs.</Empty>;
  const options = [
    { value: "", label: workers.length > MOST ? `First ${MOST} of ${counted(workers.length, "worker")}` : `All ${counted(workers.length, "worker")}` },
    ...workers.map((value) => ({ value, label: value })),
  ];
  return (
    <div className={layout.stack}>
      {workers.length > 1 ? <div className={layout.row}><Select label="Worker" value={workers.includes(worker) ? worker : ""} options={options} onChange={onWorker} /></div> : null}
      <Strips resources={shown} />
    </div>
  );
}
