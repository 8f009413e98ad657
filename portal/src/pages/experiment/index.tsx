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

/** An experiment: its state, models × datasets, and everything that belongs to it. */
export default function ExperimentPage() {
  const { params, search, update } = usePlace("/e/$experiment");
  const { experiment } = params;
  const { data: detail, error, refetch } = useApi("/experiments/{experiment}", { path: { experiment } });
  const row = detail?.row;
  const stale = useStale(row !== undefined && RUNNING.includes(row.state));
  usePageTitle(row?.plan ?? experiment, row && row.answered < row.samples ? { progress: row.answered / Math.max(1, row.samples) } : {});
  if (!detail) {
    const missing = { title: `There is no experiment ${experiment}`, text: "It may have been deleted, or it belongs to another home (`HPCBENCH_HOME`)." };
    return <Pending name={experiment} fault={error} retry={() => void refetch()} missing={missing} />;
  }
  const tabs: readonly { id: Tab; label: string; count?: number | undefined }[] = [
    { id: "tasks", label: "Run tasks", count: detail.row.run_tasks },
    { id: "summary", label: "Summary" },
    { id: "charts", label: "Charts", count: detail.figures.length || undefined },
    { id: "resources", label: "Resources" },
    { id: "logs", label: "Logs" },
    { id: "config", label: "Configuration" },
    { id: "provenance", label: "Provenance" },
    { id: "report", label: "Report", count: detail.reports.length || undefined },
  ];
  return (
    <div className={layout.page}>
      {error && !error.unreachable && <FaultBox fault={error} retry={() => void refetch()} />}
      <Stale since={stale}>
        <Header detail={detail} />
        <Tabs label="Views of the experiment" tabs={tabs} current={search.tab} onChange={(tab) => update({ tab })}>
          <TabPanel detail={detail} search={search} update={update} />
        </Tabs>
      </Stale>
    </div>
  );
}
