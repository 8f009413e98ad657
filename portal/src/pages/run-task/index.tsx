import { useApi } from "../../api";
import { Pending } from "../../app/Pending";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { useStale } from "../../parts/use-stale";
import { FaultBox, Stale, Tabs } from "../../ui";
import layout from "../../ui/layout.module.css";
import { Header } from "./Header";
import type { Tab } from "./search";
import { RUNNING, TabPanel } from "./TabPanel";

/** A run task: when what happened, how far it is, what came out, and what to ask for next time. */
export default function RunTaskPage() {
  const { params, search, update } = usePlace("/e/$experiment/t/$task");
  const { experiment, task } = params;
  const { data: detail, error, refetch } = useApi("/experiments/{experiment}/run-tasks/{run_task}", { path: { experiment, run_task: task } });
  const row = detail?.row;
  const stale = useStale(row !== undefined && RUNNING.includes(row.state));
  usePageTitle(row ? `${task}, ${row.model}` : task, row && row.answered < row.samples ? { progress: row.answered / Math.max(1, row.samples) } : {});
  if (!detail) {
    const missing = { title: `There is no run task ${task}`, text: error?.fault.error ?? "" };
    return <Pending name={task} fault={error} retry={() => void refetch()} missing={missing} />;
  }
  const tabs: readonly { id: Tab; label: string; count?: number | undefined }[] = [
    { id: "overview", label: "Overview" },
    { id: "charts", label: "Charts and speed", count: detail.figures.length || undefined },
    { id: "groups", label: "Groups", count: detail.groups.length || undefined },
    { id: "resources", label: "Resources" },
    { id: "logs", label: "Logs" },
    { id: "commands", label: "Commands and definitions" },
  ];
  return (
    <div className={layout.page}>
      {error && !error.unreachable && <FaultBox fault={error} retry={() => void refetch()} />}
      <Stale since={stale}>
        <Header detail={detail} />
        <Tabs label="Views of the run task" tabs={tabs} current={search.tab} onChange={(tab) => update({ tab })}>
          <TabPanel detail={detail} search={search} update={update} />
        </Tabs>
      </Stale>
    </div>
  );
}
