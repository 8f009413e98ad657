import { Failures } from "../../parts/Failures";
import { Panel } from "../../ui";
import layout from "../../ui/layout.module.css";
import { AdviceList } from "./AdviceList";
import { DatasetObjects } from "./DatasetObjects";
import { Metrics } from "./Metrics";
import { Outcomes } from "./Outcomes";
import type { TabProps } from "./TabPanel";
import { Timeline } from "./Timeline";

/** What is wanted first: what went wrong, what came out, what happened when, how far each object is. */
export function Overview({ detail, search, update }: TabProps) {
  const { row, metrics, failures, advice, outcomes } = detail;
  const asked = Object.keys(outcomes).length > 0;
  return (
    <div className={layout.stack}>
      {failures.length > 0 && (
        <Panel title="Failures">
          <Failures experiment={row.experiment} failures={failures} links={false} />
        </Panel>
      )}
      {(metrics.length > 0 || asked) && (
        <div className={metrics.length > 0 && asked ? layout.split : layout.stack}>
          {metrics.length > 0 && <Metrics metrics={metrics} scores={row.scores} experiment={row.experiment} task={row.name} />}
          {asked && <Outcomes detail={detail} />}
        </div>
      )}
      {advice.length > 0 && <AdviceList advice={advice} />}
      <Timeline phases={detail.timeline} begun={detail.row.answered > 0} />
      <DatasetObjects experiment={row.experiment} task={row.name} chosen={search.object} asTable={search.table} onChoose={(object) => update({ object }, { replace: true })} onTable={(table) => update({ table })} />
    </div>
  );
}
