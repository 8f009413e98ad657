import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { usePages } from "../../api";
import { isBundle } from "../../api/bundle";
import { Chips, ColumnChooser, Empty, Export, FaultBox, lookOf, Skeleton, type Sort, Table, TextInput } from "../../ui";
import { counted } from "../../ui/format";
import { FilterList } from "./FilterList";
import { COLUMNS } from "./task-columns";
import { SORTS } from "./search";
import type { TabProps } from "./TabPanel";
import styles from "./experiment.module.css";

/** Run tasks as a table, by page, with filters. */
export function TasksTab({ detail, search, update }: TabProps) {
  const { row } = detail;
  const navigate = useNavigate();
  const query = useMemo(
    () => ({
      ...(search.text ? { text: search.text } : {}),
      ...(search.state.length ? { state: search.state } : {}),
      ...(search.model.length ? { model: search.model } : {}),
      ...(search.dataset.length ? { dataset: search.dataset } : {}),
      sort: search.sort,
      order: search.order,
    }),
    [search],
  );
  const path = { experiment: row.id };
  const pages = usePages("/experiments/{experiment}/run-tasks", { path, query });
  const filtered = search.text || search.state.length || search.model.length || search.dataset.length;
  const states = Object.entries(row.tasks_by_state).map(([value, amount]) => ({ value, label: lookOf(value).word, count: amount }));
  return (
    <div className={styles.tasks}>
      <div className={styles.filters}>
        {!isBundle() && (
          <>
            <TextInput label="Find a run task" search value={search.text} onChange={(text) => update({ text }, { replace: true })} delay={200} />
            {states.length > 1 && <Chips label="States" options={states} chosen={search.state} onChange={(state) => update({ state })} />}
            {row.models.length > 1 && <FilterList label="Models" values={row.models} chosen={search.model} onChange={(model) => update({ model })} />}
            {row.datasets.length > 1 && <FilterList label="Datasets" values={row.datasets} chosen={search.dataset} onChange={(dataset) => update({ dataset })} />}
          </>
        )}
        <span className={styles.spring} />
        <span className={styles.total} role="status">
          {pages.total === undefined ? "" : `${counted(pages.total, "run task")}${pages.floor ? " or more" : ""}`}
        </span>
        <ColumnChooser columns={COLUMNS} chosen={search.columns} onChoose={(columns) => update({ columns }, { replace: true })} />
        <Export path="/experiments/{experiment}/run-tasks/export" params={{ path, query }} />
      </div>
      {pages.fault && !pages.fault.unreachable && <FaultBox fault={pages.fault} retry={pages.again} />}
      {pages.loading ? (
        <Skeleton lines={8} />
      ) : (
        <Table
          label="Run tasks"
          height="fit"
          rows={pages.rows}
          columns={COLUMNS}
          rowKey={(task) => task.name}
          chosen={search.columns}
          // A bundle has the tasks in one order.
          {...(isBundle() ? {} : { sort: { by: search.sort, order: search.order }, onSort: ({ by, order }: Sort) => update({ sort: SORTS.find((one) => one === by) ?? "name", order }) })}
          onOpen={(task) => void navigate({ to: "/e/$experiment/t/$task", params: { experiment: row.id, task: task.name } })}
          empty={<Empty title={filtered ? "No run task passes the filters" : "There are no run tasks"} />}
        />
      )}
    </div>
  );
}
