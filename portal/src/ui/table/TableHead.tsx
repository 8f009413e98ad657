import type { CSSProperties } from "react";
import { Cut } from "../Cut";
import { Icon } from "../Icon";
import { join } from "../join";
import styles from "./Table.module.css";
import type { Column, Sort } from "./types";

interface Props<Row> {
  readonly columns: readonly Column<Row>[];
  readonly sort: Sort | undefined;
  readonly onSort: ((sort: Sort) => void) | undefined;
  readonly tracks: string;
  readonly least: CSSProperties;
  /** Columns before the first one. */
  readonly start: number;
}

/** Heads of columns; those that can be sorted by are buttons. */
export function TableHead<Row>({ columns, sort, onSort, tracks, least, start }: Props<Row>) {
  return (
    <div role="rowgroup" className={styles.head} style={least}>
      <div role="row" aria-rowindex={1} className={styles.row} style={{ gridTemplateColumns: tracks }}>
        {start > 0 && (
          <span role="columnheader" aria-colindex={1} data-cell="-1:0" tabIndex={-1} className={join(styles.cell, styles.check)}>
            <span className="visually-hidden">Select</span>
          </span>
        )}
        {columns.map((column, place) => (
          <span
            key={column.id}
            role="columnheader"
            aria-colindex={place + start + 1}
            aria-sort={column.sort === undefined || column.sort !== sort?.by ? undefined : sort.order === "asc" ? "ascending" : "descending"}
            data-cell={`-1:${place + start}`}
            tabIndex={-1}
            className={join(styles.cell, place === 0 && styles.frozen, place === 0 && start > 0 && styles.second, column.align === "end" && styles.end)}
            title={column.title}
          >
            <Head column={column} sort={sort} onSort={onSort} />
          </span>
        ))}
      </div>
    </div>
  );
}

function Head<Row>({ column, sort, onSort }: { readonly column: Column<Row>; readonly sort: Sort | undefined; readonly onSort: ((sort: Sort) => void) | undefined }) {
  const by = column.sort;
  const name = (
    <span className={styles.name}>
      <Cut text={column.head} />
    </span>
  );
  if (by === undefined || !onSort) return name;
  const first = column.first ?? (column.align === "end" ? "desc" : "asc");
  const other = first === "asc" ? "desc" : "asc";
  const now = sort?.by === by ? sort.order : undefined;
  return (
    <button type="button" className={styles.sorter} onClick={() => onSort({ by, order: now === first ? other : first })}>
      {name}
      {now && <Icon name={now === "asc" ? "up" : "down"} size={11} />}
    </button>
  );
}
