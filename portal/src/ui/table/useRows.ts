import { defaultRangeExtractor, elementScroll, observeElementOffset, useVirtualizer } from "@tanstack/react-virtual";
import { type RefObject, useEffect, useRef } from "react";
import type { Rows } from "../../api/hooks";
import { useLook } from "../look";
import { scaleOf, TALLEST } from "./scale";

const EMPTY: Rows<never> = { count: 0, at: () => undefined };

/** Rows, whichever way they are given. */
export function rowsOf<Row>(given: Rows<Row> | readonly Row[] | undefined): Rows<Row> {
  if (given === undefined) return EMPTY;
  return "at" in given && "count" in given ? given : { count: given.length, total: given.length, at: (index) => given[index] };
}

/** Height of a row, pixels; it grows with the size of text that the reader has set. */
function useRowHeight(): number {
  const { density } = useLook();
  const size = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
  return size * (density === "compact" ? 2 : 2.5);
}

export interface VirtualRow {
  readonly index: number;
  /** Pixels from the top of the drawn list. */
  readonly top: number;
}

/** Which rows are drawn, and where: those in view, and the one that has the focus. */
export function useRows<Row>(scroller: RefObject<HTMLDivElement | null>, rows: Rows<Row>, held: number) {
  const height = useRowHeight();
  const scale = useRef(1);
  // It is used here only, and no part of it is passed to memoized code.
  // eslint-disable-next-line react-hooks/incompatible-library
  const virtualizer = useVirtualizer({
    count: rows.count,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 8,
    initialRect: { width: 1000, height: 600 },
    rangeExtractor: (range) => {
      const found = defaultRangeExtractor(range);
      const kept = held >= 0 && held < rows.count && !found.includes(held);
      return kept ? [...found, held].sort((a, b) => a - b) : found;
    },
    observeElementOffset: (instance, tell) => observeElementOffset(instance, (offset, moving) => tell(offset * scale.current, moving)),
    scrollToFn: (offset, options, instance) => elementScroll(offset / scale.current, options, instance),
  });
  useEffect(() => virtualizer.measure(), [virtualizer, height]);
  const whole = rows.count * height;
  const seen = scroller.current?.clientHeight ?? 600;
  scale.current = scaleOf(whole, seen);
  const offset = virtualizer.scrollOffset ?? 0;
  const shift = offset - offset / scale.current;
  const drawn: VirtualRow[] = virtualizer.getVirtualItems().map(({ index, start }) => ({ index, top: start - shift }));
  const first = drawn[0]?.index ?? 0;
  const last = virtualizer.range?.endIndex ?? drawn.at(-1)?.index ?? 0;
  useEffect(() => {
    if (rows.count > 0) rows.need?.(first, last);
  }, [rows, first, last]);
  return { drawn, height, whole: Math.min(whole, TALLEST), reveal: (index: number) => virtualizer.scrollToIndex(index, { align: "auto" }) };
}
