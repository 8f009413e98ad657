import { memo, type MouseEvent } from "react";
import { join } from "../join";
import styles from "./Table.module.css";
import type { Column } from "./types";

/** What has a use of its own for clicks and keys. */
export const WIDGETS = "a, button, input, label, select";

export interface RowProps<Row> {
  readonly index: number;
  /** Pixels from the top of the list. */
  readonly top: number;
  readonly height: number;
  /** Widths of columns. */
  readonly tracks: string;
  /** undefined: not here yet. */
  readonly row: Row | undefined;
  readonly name: string | undefined;
  readonly columns: readonly Column<Row>[];
  /** undefined: rows are not selected in this table. */
  readonly selected: boolean | undefined;
  readonly current: boolean;
  readonly onTurn: (name: string) => void;
  readonly onOpen: ((row: Row) => void) | undefined;
}

/** A row; drawn again only where something of it changed, for it is drawn with every step of scrolling. */
export const TableRow = memo(function TableRow<Row>({ index, top, height, tracks, row, name, columns, selected, current, onTurn, onOpen }: RowProps<Row>) {
  const open = (event: MouseEvent) => {
    if (row !== undefined && !(event.target as Element).closest(WIDGETS) && !getSelection()?.toString()) onOpen?.(row);
  };
  return (
    // Enter on a cell does what the click does: see the table's keys.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events
    <div
      role="row"
      tabIndex={-1}
      aria-rowindex={index + 2}
      aria-selected={selected}
      aria-current={current ? "true" : undefined}
      className={join(styles.row, onOpen && styles.opens)}
      style={{ gridTemplateColumns: tracks, height, transform: `translateY(${top}px)` }}
      onClick={onOpen && open}
    >
      <Cells index={index} row={row} name={name} columns={columns} selected={selected} onTurn={onTurn} />
    </div>
  );
}) as <Row>(props: RowProps<Row>) => React.ReactNode;

type CellsProps<Row> = Pick<RowProps<Row>, "index" | "row" | "name" | "columns" | "selected" | "onTurn">;

/** Scrolling a very long list moves its rows and does not draw their contents again. */
const Cells = memo(function Cells<Row>({ index, row, name, columns, selected, onTurn }: CellsProps<Row>) {
  const start = selected === undefined ? 0 : 1;
  return (
    <>
      {selected !== undefined && (
        <span role="gridcell" aria-colindex={1} data-cell={`${index}:0`} tabIndex={-1} className={join(styles.cell, styles.check)}>
          {name !== undefined && <input type="checkbox" aria-label={`Select ${name}`} checked={selected} onChange={() => onTurn(name)} />}
        </span>
      )}
      {columns.map((column, place) => (
        <span
          key={column.id}
          role={place === 0 ? "rowheader" : "gridcell"}
          aria-colindex={place + start + 1}
          data-cell={`${index}:${place + start}`}
          tabIndex={-1}
          className={join(styles.cell, place === 0 && styles.frozen, place === 0 && start > 0 && styles.second, column.align === "end" && styles.end)}
        >
          {row === undefined ? <span className={styles.coming} /> : column.cell(row)}
        </span>
      ))}
    </>
  );
}) as <Row>(props: CellsProps<Row>) => React.ReactNode;
