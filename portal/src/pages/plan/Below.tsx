import { lazy, Suspense } from "react";
import type { DefinitionRow } from "../../api/schema";
import { usePlace } from "../../app/place";
import { Commands } from "../../parts/Commands";
import { Empty, Skeleton, Tabs } from "../../ui";
import { EstimateView } from "./EstimateView";
import type { DefinitionKind } from "./kinds";
import { ProblemList } from "./ProblemList";
import { TaskTable } from "./TaskTable";
import type { PlanTab } from "./search";
import type { Check } from "./use-check";
import type { EditedText } from "./use-text";
import styles from "./plan.module.css";

const TextDiff = lazy(() => import("./editor/TextDiff"));

interface Props {
  readonly row: DefinitionRow | null;
  readonly kind: DefinitionKind;
  readonly edited: EditedText;
  readonly check: Check;
  readonly onJump: (line: number, column?: number) => void;
}

/** What the text comes to. */
export function Below({ row, kind, edited, check, onJump }: Props) {
  const { search, update } = usePlace("/plans/$definition");
  const { found } = check;
  const plan = kind === "plans";
  const tabs: { id: PlanTab; label: string; count?: number | undefined }[] = [
    { id: "problems", label: "Problems", count: found?.problems.length },
    ...(plan ? ([{ id: "tasks", label: "Run tasks", count: found?.run_tasks_total }, { id: "estimate", label: "Estimate" }] as const) : []),
    ...(plan && row ? ([{ id: "commands", label: "Commands" }] as const) : []),
    ...(row ? ([{ id: "changes", label: edited.dirty ? "Changes •" : "Changes" }] as const) : []),
  ];
  const current = tabs.some((tab) => tab.id === search.tab) ? search.tab : "problems";
  return (
    <section className={styles.below} aria-label="Results of the check">
      <Tabs label="Results of the check" tabs={tabs} current={current} onChange={(tab) => update({ tab }, { replace: true })}>
        {current === "problems" && <ProblemList check={check} onJump={onJump} />}
        {current === "tasks" && <TaskTable check={check} />}
        {current === "estimate" && <EstimateView check={check} />}
        {current === "commands" && (found ? <Commands commands={found.commands} /> : <Skeleton />)}
        {current === "changes" && (
          <Suspense fallback={<Skeleton />}>
            {edited.dirty ? <TextDiff before={edited.saved.text} after={edited.text} labels={["Saved", "Edited"]} /> : <Empty title="The text equals the saved file" />}
          </Suspense>
        )}
      </Tabs>
    </section>
  );
}
