import { type KeyboardEvent, type ReactNode, useCallback, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Rows } from "../../api/hooks";
import { join } from "../join";
import { TableHead } from "./TableHead";
import styles from "./Table.module.css";
import { TableRow, WIDGETS } from "./TableRow";
import { type Column, shownColumns, type Sort } from "./types";
import { useRoving } from "./useRoving";
import { rowsOf, useRows } from "./useRows";

export interface TableProps<Row> {
  /** What is listed, for those who do not see it. */
  readonly label: string;
  readonly rows: Rows<Row> | readonly Row[] | undefined;
  readonly columns: readonly Column<Row>[];
  readonly rowKey: (row: Row) => string;
  readonly sort?: Sort;
  readonly onSort?: (sort: Sort) => void;
  /** Ids of columns to show; none: those that are not optional. */
  readonly chosen?: readonly string[];
  readonly selected?: ReadonlySet<string>;
  readonly onSelected?: (selected: ReadonlySet<string>) => void;
  /** Key of the selected row. */
  readonly current?: string | undefined;
  /** A row was clicked, or Enter was pressed on it. */
  readonly onOpen?: (row: Row) => void;
  /** Shown when there are no rows. */
  readonly empty?: ReactNode;
  /** `fill` what the parent leaves, or as high as its rows up to 60 % of the window. */
  readonly height?: "fill" | "fit";
}

/** Width of the column of ticks, pixels; the style sheet has it too. */
const CHECK = 38;

/** A long table: only rows in view are drawn, the first column and the head stay where they are. */
export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, chosen, rowKey, selected, onSelected, current, onOpen } = props;
  const grid = useRef<HTMLDivElement>(null);
  const rows = rowsOf(props.rows);
  const shown = useMemo(() => shownColumns(columns, chosen), [columns, chosen]);
  const checks = onSelected !== undefined;
  const start = checks ? 1 : 0;
  const [held, setHeld] = useState(-1);
  const { drawn, height, whole, reveal } = useRows(grid, rows, held);
  const { row: focused, onFocus, onKeyDown } = useRoving(grid, { rows: rows.count, columns: shown.length + start }, reveal);
  if (focused !== held) setHeld(focused);
  const turn = useLatest((key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelected?.(next);
  });
  const open = useLatest((row: Row) => onOpen?.(row));
  const onKey = (event: KeyboardEvent) => {
    const row = rows.at(focused);
    const bare = !(event.target as Element).matches(WIDGETS);
    if (row && bare && event.key === "Enter" && onOpen) onOpen(row);
    else if (row && bare && event.key === " " && checks) {
      event.preventDefault();
      turn(rowKey(row));
    } else onKeyDown(event);
  };
  const tracks = tracksOf(shown, checks);
  const least = { minWidth: widthOf(shown, checks) };
  return (
    <div
      ref={grid}
      role="grid"
      aria-label={label}
      aria-rowcount={rows.floor || rows.total === undefined ? -1 : rows.total + 1}
      aria-colcount={shown.length + start}
      aria-multiselectable={checks || undefined}
      className={join(styles.grid, props.height === "fit" ? styles.fit : styles.fill)}
      tabIndex={-1}
      onFocus={onFocus}
      onKeyDown={onKey}
    >
      <TableHead columns={shown} sort={props.sort} onSort={props.onSort} tracks={tracks} least={least} start={start} />
      {rows.count === 0 && (
        <div role="rowgroup">
          <div role="row">
            <div role="gridcell" tabIndex={0} className={styles.empty}>
              {props.empty}
            </div>
          </div>
        </div>
      )}
      <div role="rowgroup" className={styles.rows} style={{ ...least, height: whole }}>
        {drawn.map(({ index, top }) => {
          const row = rows.at(index);
          const name = row === undefined ? undefined : rowKey(row);
          return (
            <TableRow
              key={name ?? `at ${index}`}
              index={index}
              top={top}
              height={height}
              tracks={tracks}
              row={row}
              name={name}
              columns={shown}
              selected={checks ? name !== undefined && selected?.has(name) === true : undefined}
              current={current !== undefined && name === current}
              onTurn={turn}
              onOpen={onOpen && open}
            />
          );
        })}
      </div>
    </div>
  );
}

/** The same function for ever, which does what the newest one does: rows are not drawn again for it. */
function useLatest<T>(act: (given: T) => void): (given: T) => void {
  const newest = useRef(act);
  useLayoutEffect(() => {
    newest.current = act;
  });
  return useCallback((given) => newest.current(given), []);
}

/** Width of a column, at least; on a narrow window the frozen one leaves room for the others. */
function leastOf(width: number, place: number): string {
  return place === 0 ? `min(${width}px, 46vw)` : `${width}px`;
}

function tracksOf<Row>(columns: readonly Column<Row>[], checks: boolean): string {
  const widths = columns.map(({ width, grow }, place) => (grow ? `minmax(${leastOf(width, place)}, 1fr)` : leastOf(width, place)));
  return [...(checks ? [`${CHECK}px`] : []), ...widths].join(" ");
}

function widthOf<Row>(columns: readonly Column<Row>[], checks: boolean): string {
  return `calc(${[`${checks ? CHECK : 0}px`, ...columns.map(({ width }, place) => leastOf(width, place))].join(" + ")})`;
}
