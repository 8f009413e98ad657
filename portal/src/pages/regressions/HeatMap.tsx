import type { CSSProperties, MouseEvent } from "react";

import type { Regression, TrendPoint, TrendRow } from "../../api/schema";
import { Cut, Icon } from "../../ui";
import { moment } from "../../ui/format";
import { join } from "../../ui/join";
import { type Cell, cellsOf, type Column, shown } from "./heat";
import styles from "./HeatMap.module.css";
import { alarmOf, isMuted, mutedOf } from "./rows";

interface Props {
  readonly rows: readonly TrendRow[];
  readonly columns: readonly Column[];
  readonly now: number;
  /** Id of the selected row. */
  readonly current: string;
  readonly onOpen: (row: TrendRow, change: Regression | null) => void;
}

/** Figures over time: a row a trend, a cell a run, a shade and a number how far it is from the row's first run. */
export function HeatMap({ rows, columns, now, current, onOpen }: Props) {
  return (
    // It scrolls by itself and needs a stop for the keyboard.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div ref={keepAtEnd} className={styles["scroll"]} role="region" aria-label="Trends" tabIndex={0}>
      <table className={styles["map"]} style={{ "--columns": columns.length } as CSSProperties} data-testid="heat">
        <caption className="visually-hidden">
          Each cell is a run and shows the difference of its figure from the first run of its row. Plus is better, minus is worse. Shares differ in percentage points, other figures in percent.
        </caption>
        <thead>
          <tr>
            <th scope="col" className={styles["corner"]}>
              plan, run task, figure
            </th>
            {columns.map((column) => (
              <th key={keyOf(column)} scope="col" className={styles["time"]}>
                <span className={styles["day"]}>{column.day}</span>
                {column.clock && <span>{column.clock}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <HeatRow key={row.id} row={row} columns={columns} now={now} chosen={row.id === current} onOpen={onOpen} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function keyOf(column: Column | undefined): string {
  return [...(column?.runs ?? [])].join();
}

/** The newest stand at the right end and are what one comes for: it stays there until the user scrolls away. */
function keepAtEnd(element: HTMLDivElement): () => void {
  let atEnd = true;
  const toEnd = () => {
    if (atEnd) element.scrollTo({ left: element.scrollWidth });
  };
  const scrolled = () => {
    atEnd = element.scrollLeft + element.clientWidth > element.scrollWidth - 40;
  };
  const observer = new ResizeObserver(toEnd);
  observer.observe(element);
  element.addEventListener("scroll", scrolled, { passive: true });
  return () => {
    observer.disconnect();
    element.removeEventListener("scroll", scrolled);
  };
}

interface RowProps {
  readonly row: TrendRow;
  readonly columns: readonly Column[];
  readonly now: number;
  readonly chosen: boolean;
  readonly onOpen: Props["onOpen"];
}

function HeatRow({ row, columns, now, chosen, onOpen }: RowProps) {
  const alarm = alarmOf(row, now);
  const muted = mutedOf(row, now);
  // A change is a place to click for the pointer; for the keyboard it is in the details of its row.
  const clicked = (event: MouseEvent) => {
    const id = (event.target as Element).closest<HTMLElement>("[data-change]")?.dataset["change"];
    onOpen(row, row.changes.find((one) => one.id === id) ?? null);
  };
  return (
    <tr className={join(chosen && styles["chosen"], muted !== null && styles["muted"])} onClick={clicked}>
      <th scope="row" className={styles["name"]}>
        <button type="button" className={styles["open"]} aria-pressed={chosen}>
          <span className={styles["first"]}>
            {alarm && <Icon name="down" size={13} label="at a worse level" />}
            {muted && <Icon name="check" size={13} label="acknowledged" />}
            <strong>{row.name}</strong>
            <span className={styles["of"]}>
              <Cut text={row.run_task} />
            </span>
          </span>
          <span className={styles["second"]}>
            {row.plan} · {row.model}
          </span>
        </button>
      </th>
      {cellsOf(row, columns).map((cell, at) => (
        <HeatCell key={keyOf(columns[at])} cell={cell} now={now} />
      ))}
    </tr>
  );
}

interface CellProps {
  readonly cell: Cell<TrendPoint, Regression> | null;
  readonly now: number;
}

function HeatCell({ cell, now }: CellProps) {
  if (!cell) return <td className={styles["empty"]} aria-label="no run" />;
  const { change, step, shift, point } = cell;
  const told = `${point.experiment}, ${moment(point.time).slice(0, 16)}: ${point.value}`;
  if (!change) {
    return (
      <td className={styles["cell"]} data-step={step} title={told}>
        {shown(shift)}
      </td>
    );
  }
  const muted = isMuted(change, now);
  return (
    <td className={join(styles["cell"], styles["change"], muted && styles["taken"])} data-step={step} data-change={change.id} title={told}>
      <span aria-hidden="true">{change.worse ? "▼" : "▲"}</span>
      {shown(shift)}
      <span className="visually-hidden">
        , level changed for the {change.worse ? "worse" : "better"}
        {muted && ", acknowledged"}
      </span>
    </td>
  );
}
