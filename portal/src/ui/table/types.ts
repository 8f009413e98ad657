import type { ReactNode } from "react";

export interface Column<Row> {
  readonly id: string;
  /** Its head, for people. */
  readonly head: string;
  /** Pixels; at least, where it grows. */
  readonly width: number;
  /** Takes what room is left. */
  readonly grow?: boolean;
  readonly align?: "start" | "end";
  /** What the server calls it when sorting by it; without it there is no sorting. */
  readonly sort?: string;
  /** The order in which it is sorted first. */
  readonly first?: "asc" | "desc";
  /** More about it, for the head's title. */
  readonly title?: string;
  /** Hidden until it is chosen. */
  readonly optional?: boolean;
  readonly cell: (row: Row) => ReactNode;
}

export interface Sort {
  readonly by: string;
  readonly order: "asc" | "desc";
}

/** Columns that are shown: those chosen, else those that are not optional; the first one always. */
export function shownColumns<Row>(columns: readonly Column<Row>[], chosen: readonly string[] | undefined): readonly Column<Row>[] {
  const any = chosen !== undefined && chosen.length > 0;
  return columns.filter((column, place) => place === 0 || (any ? chosen.includes(column.id) : !column.optional));
}
