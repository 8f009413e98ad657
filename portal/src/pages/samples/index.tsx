import { useRef } from "react";

import { useApi } from "../../api";
import { isBundle } from "../../api/bundle";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { Empty, Export, FaultBox, Skeleton, StateChip } from "../../ui";
import { count } from "../../ui/format";
import { useHotkeys } from "../../ui/hotkeys";
import { Browser } from "./Browser";
import { FacetStrip } from "./FacetStrip";
import { facetKeys, type FacetValue, grouped } from "./facets";
import { apiQuery, filterOf, hasFacet, NOTHING, type SampleFilter, withFacet } from "./filter";
import { FilterBar } from "./FilterBar";
import { ROW } from "./SampleList";
import styles from "./Samples.module.css";
import { useSamples } from "./useSamples";
import { Button } from "../../ui";

const PATH = "/experiments/{experiment}/run-tasks/{run_task}/samples";

/** The samples of a run task: what was asked, what was right, what was answered, one by one. */
export default function SamplesPage() {
  const { params, search, update } = usePlace("/e/$experiment/t/$task/samples");
  const { experiment, task } = params;
  const filter = filterOf(search);
  const samples = useSamples(experiment, task, filter, ROW);
  const ids = { experiment, run_task: task };
  const facets = useApi(`${PATH}/facets`, isBundle() ? null : { path: ids, query: apiQuery(filter) }, { keep: true, fresh: 60_000 });
  const searchBox = useRef<HTMLDivElement>(null);
  const chosen = (field: string, value: string) => hasFacet(filter, field, value);
  const groups = grouped(facets.data ?? [], chosen);
  // What was shown may not pass another filter: the first that does is.
  const onFilter = (change: Partial<SampleFilter>) => update({ ...change, at: null, image: 0 });
  const onTurn = (value: FacetValue) => onFilter(withFacet(filter, value.field, value.value));
  const { data: detail } = useApi("/experiments/{experiment}/run-tasks/{run_task}", { path: ids }, { fresh: 300_000 });
  usePageTitle(`Samples of ${task}${detail ? `, ${detail.row.model}` : ""}`);
  useHotkeys(
    {
      ...(isBundle() ? {} : { "/": ["search", () => searchBox.current?.querySelector("input")?.focus()] as const }),
      w: ["wrong only", () => onFilter({ wrong: !filter.wrong })],
      ...facetKeys(groups, onTurn),
    },
    "Filter",
  );
  const { first, fault } = samples;
  return (
    <div className={styles["page"]} data-shows={search.at === null ? "list" : "sample"}>
      <div className={styles["top"]}>
        <div className={styles["title"]}>
          <h1>Samples of {task}</h1>
          {first && (
            <span className={styles["count"]} role="status">
              {first.total === first.of ? count(first.of) : `${count(first.total)} of ${count(first.of)}`}
            </span>
          )}
          {first?.live && <StateChip state="running" note="answers appear as they come" />}
        </div>
        <FilterBar filter={filter} metrics={first?.metrics ?? []} onFilter={onFilter} searchBox={searchBox}>
          <Export path={`${PATH}/export`} params={{ path: ids, query: apiQuery(filter) }} />
        </FilterBar>
        <FacetStrip groups={groups} chosen={chosen} onTurn={onTurn} />
      </div>
      {fault ? (
        <div className={styles["room"]}>
          <FaultBox fault={fault} retry={samples.again} />
        </div>
      ) : !first ? (
        <div className={styles["room"]}>
          <Skeleton lines={8} />
        </div>
      ) : first.total === 0 ? (
        <div className={styles["room"]}>
          <Empty title={first.of === 0 ? "No samples yet" : "No sample passes the filter"} next={first.of > 0 && <Button onClick={() => onFilter(NOTHING)}>Clear the filter</Button>}>
            {first.of === 0 ? "Samples appear here after hpcbench has planned the run task." : `There are ${count(first.of)} in all.`}
          </Empty>
        </div>
      ) : (
        <Browser experiment={experiment} task={task} search={search} update={update} samples={samples} />
      )}
    </div>
  );
}
