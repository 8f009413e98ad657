import { Link } from "@tanstack/react-router";
import { entriesOf, entryOf, type Entry, listIn, numberIn, shown, textIn } from "../../parts/entries";
import { type Column, Empty, Panel, Select, Table } from "../../ui";
import { count, counted, number, percent } from "../../ui/format";
import { Interval } from "./Interval";
import styles from "./run-task.module.css";

interface Props {
  readonly groups: readonly Entry[];
  /** The level shown; empty: the first. */
  readonly by: string;
  readonly onBy: (by: string) => void;
  readonly experiment: string;
  readonly task: string;
}

/** Scores by group of the dataset: a level at a time. */
export function Groups({ groups, by, onBy, experiment, task }: Props) {
  const levels = groups.map((level) => ({ name: nameOf(level), level }));
  const current = levels.find((one) => one.name === by) ?? levels[0];
  if (!current) {
    return <Empty title="No groups">A dataset lists the metadata columns to group by in group_by; <code>{`hpcbench score ${experiment} --by COLUMN`}</code> groups by any other column.</Empty>;
  }
  const rows = entriesOf(current.level["rows"]);
  const amount = numberIn(current.level, "groups") ?? rows.length;
  const actions = levels.length > 1 && <Select label="Group by" value={current.name} options={levels.map(({ name }) => ({ value: name }))} onChange={onBy} />;
  return (
    <Panel title={`By ${current.name}`} actions={actions} bare>
      {rows.length === 0 ? (
        <Empty title={`${counted(amount, "group is", "groups are")} too many to show`}>
          <code>{`hpcbench score ${experiment} --by COLUMN`}</code> shows all groups.
        </Empty>
      ) : (
        <Table label={`Scores by ${current.name}`} height="fit" rows={rows} columns={columnsOf(current.level, experiment, task)} rowKey={(row) => JSON.stringify([row["by"], row["metric"]])} />
      )}
    </Panel>
  );
}

function nameOf(level: Entry): string {
  const by = level["by"];
  return Array.isArray(by) ? by.map(shown).join(" and ") : shown(by);
}

/** Values of a row in the order of the level's columns. */
function valuesOf(row: Entry, names: readonly string[]): string[] {
  const by = row["by"];
  const named = entryOf(by);
  if (named) return names.map((name) => shown(named[name]));
  return Array.isArray(by) ? by.map(shown) : [shown(by)];
}

function columnsOf(level: Entry, experiment: string, task: string): Column<Entry>[] {
  const given = listIn(level, "by").map(shown);
  const names = given.length > 0 ? given : [shown(level["by"])];
  const where = (row: Entry) => valuesOf(row, names).map((value, place) => `${names[place] ?? ""}:${value}`);
  return [
    {
      id: "group",
      head: names.join(" · "),
      width: 220,
      grow: true,
      cell: (row) => (
        <Link to="/e/$experiment/t/$task/samples" params={{ experiment, task }} search={names.includes("field") ? {} : { where: where(row) }}>
          {valuesOf(row, names).join(" · ")}
        </Link>
      ),
    },
    { id: "metric", head: "Metric", width: 160, cell: (row) => textIn(row, "metric") },
    { id: "value", head: "Value", width: 90, align: "end", cell: (row) => <strong>{number(numberIn(row, "value"))}</strong> },
    { id: "interval", head: "95 % interval", width: 230, cell: (row) => <Interval value={numberIn(row, "value")} low={numberIn(row, "low")} high={numberIn(row, "high")} /> },
    { id: "n", head: "n", width: 80, align: "end", cell: (row) => count(numberIn(row, "n")) },
    { id: "documents", head: "Documents", width: 112, align: "end", cell: (row) => count(numberIn(row, "documents")) },
    { id: "coverage", head: "Coverage", width: 92, align: "end", cell: (row) => percent(numberIn(row, "coverage"), 1) },
    { id: "invalid", head: "Unreadable", width: 104, align: "end", cell: (row) => <span className={numberIn(row, "invalid") ? undefined : styles.dim}>{count(numberIn(row, "invalid"))}</span> },
  ];
}
