import { isBundle } from "../../api/bundle";
import type { RunTaskDetail } from "../../api/schema";
import { Commands } from "../../parts/Commands";
import { entryOf } from "../../parts/entries";
import { Figures } from "../../parts/Figures";
import { Logs } from "../../parts/Logs";
import { ResourceStrips } from "../../parts/ResourceStrips";
import { Panel } from "../../ui";
import layout from "../../ui/layout.module.css";
import { AgentWork } from "./AgentWork";
import { Definitions } from "./Definitions";
import { Groups } from "./Groups";
import { Overview } from "./Overview";
import type { Search } from "./search";
import { Speed } from "./Speed";

export interface TabProps {
  readonly detail: RunTaskDetail;
  readonly search: Search;
  readonly update: (change: Partial<Search>, options?: { readonly replace?: boolean }) => void;
}

/** States in which files still grow. */
export const RUNNING: readonly string[] = ["pending", "running", "paused"];

/** What the chosen tab shows. */
export function TabPanel(props: TabProps) {
  const { detail, search, update } = props;
  const { experiment, name } = detail.row;
  const runs = !isBundle() && RUNNING.includes(detail.row.state);
  const work = entryOf(detail.performance?.["trajectories"]);
  switch (search.tab) {
    case "overview":
      return <Overview {...props} />;
    case "charts":
      return (
        <div className={layout.stack}>
          {work ? <AgentWork work={work} /> : detail.performance && <Speed performance={detail.performance} />}
          <Figures experiment={experiment} runTask={name} figures={detail.figures} group={search.group} onGroup={(group) => update({ group })} />
        </div>
      );
    case "groups":
      return <Groups groups={detail.groups} by={search.by} onBy={(by) => update({ by })} experiment={experiment} task={name} />;
    case "resources":
      return <ResourceStrips experiment={experiment} runTask={name} runs={runs} worker={search.worker} onWorker={(worker) => update({ worker })} />;
    case "logs":
      return <Logs experiment={experiment} runTask={name} runs={runs} failures={detail.failures} log={search.log} search={search} onSearch={(change) => update(change, { replace: true })} />;
    case "commands":
      return (
        <div className={layout.stack}>
          <Panel title="Commands to copy">
            <Commands commands={detail.commands} />
          </Panel>
          <Definitions definitions={detail.definitions} />
        </div>
      );
  }
}
