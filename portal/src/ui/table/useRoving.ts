import { type FocusEvent, type KeyboardEvent, type RefObject, useLayoutEffect, useRef, useState } from "react";

const WIDGETS = "a[href], button, input, select";
/** What Tab would stop at. */
const STOPS = '[data-cell][tabindex="0"], [data-cell] :is(a[href], button, input, select):not([tabindex="-1"])';
const PAGE = 15;

/** A cell: row -1 is the head. */
interface Cell {
  readonly row: number;
  readonly column: number;
}

interface Size {
  readonly rows: number;
  readonly columns: number;
}

/** Where a key leads from a cell; null: the key is not ours. */
export function moved(event: { readonly key: string; readonly ctrlKey: boolean; readonly metaKey: boolean }, { row, column }: Cell, { rows, columns }: Size): Cell | null {
  const far = event.ctrlKey || event.metaKey;
  const to: Readonly<Record<string, Cell>> = {
    ArrowDown: { row: row + 1, column },
    ArrowUp: { row: row - 1, column },
    ArrowRight: { row, column: column + 1 },
    ArrowLeft: { row, column: column - 1 },
    PageDown: { row: row + PAGE, column },
    PageUp: { row: Math.max(0, row - PAGE), column },
    Home: { row: far ? 0 : row, column: 0 },
    End: { row: far ? rows - 1 : row, column: columns - 1 },
  };
  const found = to[event.key];
  if (!found) return null;
  return { row: Math.max(-1, Math.min(rows - 1, found.row)), column: Math.max(0, Math.min(columns - 1, found.column)) };
}

function widgetsIn(cell: Element): HTMLElement[] {
  return [...cell.querySelectorAll<HTMLElement>(WIDGETS)];
}

/** Where Tab stops for a cell: at what it holds, else at itself. Arrows reach a head without a button, too, but it
 * is nothing to stop at: then the next cell of its row is. */
function stopsFrom(cell: Element | null): HTMLElement[] {
  if (!cell) return [];
  const widgets = widgetsIn(cell);
  if (widgets.length > 0) return widgets;
  return cell.getAttribute("role") === "gridcell" ? [cell as HTMLElement] : stopsFrom(cell.nextElementSibling);
}

/** Focus inside a grid: one stop for Tab, arrows from cell to cell (WAI-ARIA's grid pattern). */
export function useRoving(grid: RefObject<HTMLDivElement | null>, size: Size, reveal: (row: number) => void) {
  const [active, setActive] = useState<Cell>({ row: size.rows > 0 ? 0 : -1, column: 0 });
  const wanted = useRef(false);
  const row = Math.min(active.row, size.rows - 1);
  const column = Math.min(active.column, size.columns - 1);
  useLayoutEffect(() => {
    const box = grid.current;
    if (!box) return;
    const cell = box.querySelector<HTMLElement>(`[data-cell="${row}:${column}"]`);
    const own = new Set(stopsFrom(cell));
    // Rows come and go while it is scrolled: what is in them may not be a stop of its own.
    for (const stop of box.querySelectorAll<HTMLElement>(STOPS)) if (!own.has(stop)) stop.tabIndex = -1;
    for (const stop of own) if (stop.tabIndex !== 0) stop.tabIndex = 0;
    if (!cell || !wanted.current) return;
    wanted.current = false;
    (widgetsIn(cell)[0] ?? cell).focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  const onFocus = (event: FocusEvent) => {
    const [r, c] = (event.target.closest<HTMLElement>("[data-cell]")?.dataset["cell"] ?? "").split(":").map(Number);
    if (r !== undefined && c !== undefined && (r !== row || c !== column)) setActive({ row: r, column: c });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const writes = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
    const to = writes || event.altKey ? null : moved(event, { row, column }, size);
    if (!to) return;
    event.preventDefault();
    wanted.current = true;
    if (to.row >= 0) reveal(to.row);
    setActive(to);
  };
  return { row, onFocus, onKeyDown };
}
