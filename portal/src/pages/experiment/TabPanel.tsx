import { isBundle } from "../../api/bundle";
import type { ExperimentDetail } from "../../api/schema";
import { Figures } from "../../parts/Figures";
import { Logs } from "../../parts/Logs";
import { ResourceStrips } from "../../parts/ResourceStrips";
import { ConfigurationTab } from "./ConfigurationTab";
import { Overview } from "./Overview";
import { ProvenanceTab } from "./ProvenanceTab";
import { ReportTab } from "./ReportTab";
import type { Search } from "./search";
import { SummaryTab } from "./SummaryTab";
import { TasksTab } from "./TasksTab";
import { Workers } from "./Workers";
import layout from "../../ui/layout.module.css";

export interface TabProps {
  readonly detail: ExperimentDetail;
  readonly search: Search;
  readonly update: (change: Partial<Search>, options?: { readonly replace?: boolean }) => void;
}

/** States in which files still grow. */
export const RUNNING: readonly string[] = ["submitting", "pending", "running", "paused", "evaluating", "stalled"];

/** What the chosen tab shows. */
export function TabPanel(props: TabProps) {
  const { detail, search, update } = props;
  const experiment = detail.row.id;
  const runs = !isBundle() && RUNNING.includes(detail.row.state);
  switch (search.tab) {
    case "tasks":
      return (
        <div className={layout.stack}>
          <Overview detail={detail} mlTask={search.ml_task} onMlTask={(task) => update({ ml_task: task })} />
          <TasksTab {...props} />
        </div>
      );
    case "summary":
      return <SummaryTab detail={detail} />;
    case "charts":
      return <Figures experiment={experiment} runTask={null} figures={detail.figures} group={search.group} onGroup={(group) => update({ group })} />;
    case "resources":
      return (
        <div className={layout.stack}>
          <Workers workers={detail.status?.workers ?? []} />
          <ResourceStrips experiment={experiment} runTask={null} runs={runs} worker={search.worker} onWorker={(worker) => update({ worker })} />
        </div>
      );
    case "logs":
      return <Logs experiment={experiment} runTask={null} runs={runs} failures={detail.failures} log={search.log} search={search} onSearch={(change) => update(change, { replace: true })} />;
    case "config":
      return <ConfigurationTab experiment={experiment} plan={detail.row.plan} baseline={search.baseline} onBaseline={(baseline) => update({ baseline })} />;
    case "provenance":
      return <ProvenanceTab experiment={experiment} />;
    case "report":
      return <ReportTab detail={detail} />;
  }
}
