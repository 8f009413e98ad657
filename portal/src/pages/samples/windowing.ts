/**
 * Which rows of a list of fixed row height are in view, however long it is.
 *
 * Browsers cut elements at some 17 to 33 million pixels; a million rows of 56 pixels are more. So the scrolled
 * element is never taller than `TALLEST`: near both ends a pixel of scrolling is a pixel of list, in between
 * it is some more. A turn of the wheel moves the list by as much as the element all the same (`moved`); only a
 * drag of the thumb jumps by proportion. When scrolling rests, the two are brought together again.
 */

/** Pixels; all browsers draw elements of this height. */
export const TALLEST = 8_000_000;

/** Pixels at either end where scrolling is one to one. */
const EVEN = 1_000_000;

export interface Extent {
  /** Rows of the list. */
  readonly rows: number;
  /** Pixels of a row. */
  readonly rowHeight: number;
  /** Pixels of the window. */
  readonly viewport: number;
}

export interface Position {
  /** Pixels the element is scrolled by. */
  readonly scroll: number;
  /** Pixels of the list above the window. */
  readonly top: number;
}

/** Pixels of the whole list. */
export function listHeight(extent: Extent): number {
  return extent.rows * extent.rowHeight;
}

/** Pixels of the element that is scrolled. */
export function elementHeight(extent: Extent): number {
  return Math.min(listHeight(extent), TALLEST);
}

/** Pixels of the list above the window, for an element scrolled by `scroll`. */
export function topOf(scroll: number, extent: Extent): number {
  const [list, element] = ends(extent);
  const at = clamp(scroll, 0, element);
  if (list === element || at <= EVEN) return at;
  if (at >= element - EVEN) return list - (element - at);
  return EVEN + ((at - EVEN) * (list - 2 * EVEN)) / (element - 2 * EVEN);
}

/** The inverse of `topOf`. */
export function scrollOf(top: number, extent: Extent): number {
  const [list, element] = ends(extent);
  const at = clamp(top, 0, list);
  if (list === element || at <= EVEN) return at;
  if (at >= list - EVEN) return element - (list - at);
  return EVEN + ((at - EVEN) * (element - 2 * EVEN)) / (list - 2 * EVEN);
}

/** Where the list is after its element was scrolled to `scroll`. */
export function moved(from: Position, scroll: number, extent: Extent): Position {
  const [list, element] = ends(extent);
  const by = scroll - from.scroll;
  const edge = scroll <= 0 || scroll >= element;
  if (edge || Math.abs(by) > extent.viewport * 2) return { scroll, top: topOf(scroll, extent) };
  return { scroll, top: clamp(from.top + by, 0, list) };
}

/** Rows to draw, end excluded, with some to spare on both sides. */
export function rowsInView(top: number, extent: Extent, spare = 6): readonly [number, number] {
  const first = Math.floor(top / extent.rowHeight) - spare;
  const last = Math.ceil((top + extent.viewport) / extent.rowHeight) + spare;
  return [clamp(first, 0, extent.rows), clamp(last, 0, extent.rows)];
}

/** `top` that shows a row with the least movement; unchanged where it is in view. */
export function revealing(row: number, top: number, extent: Extent): number {
  const begin = row * extent.rowHeight;
  const end = begin + extent.rowHeight;
  if (begin < top) return begin;
  if (end > top + extent.viewport) return Math.max(0, end - extent.viewport);
  return top;
}

/** `top` that has a row in the middle. */
export function centring(row: number, extent: Extent): number {
  const wanted = row * extent.rowHeight - (extent.viewport - extent.rowHeight) / 2;
  return clamp(wanted, 0, ends(extent)[0]);
}

/** How far list and element can be scrolled. */
function ends(extent: Extent): readonly [number, number] {
  return [
    Math.max(0, listHeight(extent) - extent.viewport),
    Math.max(0, elementHeight(extent) - extent.viewport),
  ];
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}
