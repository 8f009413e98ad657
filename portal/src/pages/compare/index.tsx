import { keepOrder, metricsOf, visible } from "./shown";
import { type FaultError, useApi } from "../../api";
import type { Candidate } from "../../api/schema";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { Bar, Empty, Export, FaultBox, Panel, Select, Skeleton, Tabs, Toggle } from "../../ui";
import { counted } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import { Careful } from "./Careful";
import { Charts } from "./Charts";
import styles from "./Compare.module.css";
import { Flips } from "./Flips";
import { Overview } from "./Overview";
import { RunBar } from "./RunBar";
import { letter, usable } from "./runs";
import { type Chosen, Scores } from "./Scores";
import type { Search } from "./search";
import { Settings } from "./Settings";
import { Speed } from "./Speed";

/** No pair of run tasks is chosen, and no sample of it. */
const NO_TASK = { task: "", other: "", by: "", mistake: "", where: [], flip: null } as const;

/** Runs side by side, sample by sample: what the others lost and won against the first. */
export default function ComparePage() {
  const { search, update } = usePlace("/compare");
  const runs = usable(search.runs);
  const asked = { runs, common: search.common || undefined };
  // It waits a moment only: what takes longer says how far it is, and is asked for again.
  const found = useApi("/compare", runs.length > 1 ? { query: { ...asked, wait: 1 } } : null, { keep: true });
  const comparison = runs.length > 1 ? found.data : undefined;
  const at = Math.min(Math.max(0, search.candidate), Math.max(0, runs.length - 2));
  const candidate = comparison?.candidates[at];
  const onRuns = (next: readonly string[]) => update({ runs: next, candidate: 0, ...NO_TASK });
  usePageTitle("Compare");
  return (
    <div className={layout["page"]}>
      <header className={layout["bar"]}>
        <h1>Compare</h1>
        {comparison && <Export path="/compare/export" params={{ query: asked }} />}
      </header>
      <RunBar runs={runs} comparison={comparison} onRuns={onRuns} />
      {runs.length < 2 && (
        <Empty title={runs.length === 0 ? "Choose two to eight runs" : "Choose one more run"}>The first run is the baseline; every other run is compared with it, sample by sample. A run is an experiment, or one run task of an experiment.</Empty>
      )}
      {runs.length > 1 && <FaultBox fault={found.error} retry={() => void found.refetch()} />}
      {runs.length > 1 && found.isFetching && <HowFar fault={found.failureReason} />}
      {runs.length > 1 && found.isPending && <Skeleton lines={8} label="Comparing sample by sample" />}
      {comparison && comparison.candidates.length > 1 && (
        <Overview comparison={comparison} metric={search.metric} current={at} onCandidate={(next) => update({ candidate: next, ...NO_TASK })} />
      )}
      {candidate && <Held key={candidate.side.run} candidate={candidate} name={letter(at + 1)} runs={[runs[0] ?? "", runs[at + 1] ?? ""]} search={search} update={update} old={found.isPlaceholderData} />}
    </div>
  );
}

/** How far a comparison is that takes a while. */
function HowFar({ fault }: { readonly fault: FaultError | null }) {
  const share = fault?.underWay ? fault.fault.progress : null;
  if (typeof share !== "number") return null;
  return (
    <p className={styles["far"]}>
      <span>Comparing sample by sample</span>
      <Bar value={share} max={1} label="Compared" />
    </p>
  );
}

interface HeldProps {
  readonly candidate: Candidate;
  readonly name: string;
  /** Baseline and candidate, as requests name them. */
  readonly runs: readonly [string, string];
  readonly search: Search;
  readonly update: (change: Partial<Search>, options?: { readonly replace?: boolean }) => void;
  readonly old: boolean;
}

/** One candidate against the baseline. */
function Held({ candidate, name, runs, search, update, old }: HeldProps) {
  const metrics = metricsOf(candidate.metrics);
  const metric = metrics.includes(search.metric) ? search.metric : "";
  const rows = keepOrder(candidate.metrics).filter((row) => metric === "" || row.metric === metric);
  const shown = search.all ? rows : visible(rows);
  const [first] = shown;
  const asked = search.task !== "" && search.by !== "" && rows.some((row) => row.baseline === search.task && row.candidate === search.other && row.metric === search.by);
  const chosen: Chosen | null = asked
    ? { task: search.task, other: search.other, by: search.by, change: search.change }
    : first
      ? { task: first.baseline, other: first.candidate, by: first.metric, change: search.change }
      : null;
  const tabs = [
    { id: "scores", label: "Scores", count: candidate.metrics.length },
    { id: "speed", label: "Speed and memory", count: candidate.speed.length },
    { id: "config", label: "Configured differently", count: candidate.differences.length },
    { id: "charts", label: "Charts" },
  ] as const;
  return (
    <section className={styles["held"]} aria-label={`Candidate ${name}`} aria-busy={old}>
      <Careful candidate={candidate} common={search.common} onCommon={(common) => update({ common })} />
      <Tabs label="Views of the comparison" tabs={tabs} current={search.tab} onChange={(tab) => update({ tab })}>
        {search.tab === "scores" && (
          <div className={styles["scores"]}>
            <Panel
              bare
              title={`${name} against A`}
              actions={
                <>
                  {metrics.length > 1 && <Select label="Metric" value={metric} options={[{ value: "", label: "all metrics" }, ...metrics.map((value) => ({ value }))]} onChange={(value) => update({ metric: value, ...NO_TASK })} />}
                  <Toggle label="Only differences" checked={!search.all} onChange={(only) => update({ all: !only })} />
                </>
              }
            >
              {shown.length > 0 ? <Scores candidate={candidate} rows={shown} chosen={chosen} onChoose={(next) => update({ ...next, mistake: "", where: [], flip: null })} /> : <Empty title={rows.length > 0 ? "No sample differs" : "Nothing could be compared"} />}
              {rows.length > shown.length && <p className={styles["note"]}>Hidden: {counted(rows.length - shown.length, "row")} without a difference.</p>}
              <p className={styles["note"]}>p is Holm-corrected over all comparisons on this page; “better” and “worse” use this p. n counts pairs of samples. Documents are the unit of chance.</p>
            </Panel>
            {chosen && <Flips key={`${chosen.task} ${chosen.other} ${chosen.by}`} baseline={runs[0]} candidate={runs[1]} chosen={chosen} common={search.common} view={search} onChange={(change) => update({ ...chosen, ...change, flip: search.flip === null ? null : 0, image: 0 })} onView={(change) => update({ ...chosen, ...change }, { replace: search.flip !== null })} />}
          </div>
        )}
        {search.tab === "speed" && <Speed candidate={candidate} />}
        {search.tab === "config" && <Settings candidate={candidate} />}
        {search.tab === "charts" && <Charts query={{ runs, metric: metric || undefined, common: search.common || undefined }} />}
      </Tabs>
    </section>
  );
}
