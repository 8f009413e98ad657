import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

import {
  centring,
  elementHeight,
  type Extent,
  listHeight,
  moved,
  type Position,
  revealing,
  rowsInView,
  scrollOf,
} from "./windowing";

/** Milliseconds without scrolling after which rows are fetched and drawn in full. */
const REST = 90;

export interface Window {
  /** Is to be the `ref` of what scrolls. */
  readonly attach: (element: HTMLDivElement | null) => void;
  /** Pixels of the element within the scroller. */
  readonly height: number;
  /** Rows to draw, end excluded. */
  readonly range: readonly [number, number];
  /** Rows in view when scrolling last rested: those to be fetched. */
  readonly settled: readonly [number, number];
  readonly resting: boolean;
  /** Whether the window has a size yet. */
  readonly ready: boolean;
  /** Pixels from the element's top at which a row is drawn. */
  readonly yOf: (row: number) => number;
  /** Brings a row into view. */
  readonly reveal: (row: number, how?: "least" | "middle") => void;
  /** Moves the list under the window, so that rows keep their place on the screen. */
  readonly shift: (rows: number) => void;
}

/** A window on a list of any length; see `windowing.ts`. */
export function useWindow(rows: number, rowHeight: number): Window {
  const [scroller, attach] = useState<HTMLDivElement | null>(null);
  const [viewport, setViewport] = useState(0);
  const [position, setPosition] = useState<Position>({ scroll: 0, top: 0 });
  const [resting, setResting] = useState(true);
  const extent: Extent = { rows, rowHeight, viewport };
  const latest = useRef({ extent, position });
  useLayoutEffect(() => {
    latest.current = { extent, position };
  });

  const move = useCallback(
    (top: number) => {
    const { extent: known } = latest.current;
    const within = Math.min(Math.max(top, 0), Math.max(0, listHeight(known) - known.viewport));
    const next = { top: within, scroll: Math.round(scrollOf(within, known)) };
    latest.current.position = next;
    setPosition(next);
    scroller?.scrollTo({ top: next.scroll });
    },
    [scroller],
  );

  useEffect(() => {
    const element = scroller;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setViewport(element.clientHeight));
    observer.observe(element);
    let rest: ReturnType<typeof setTimeout> | undefined;
    const scrolled = () => {
      const { extent: known, position: from } = latest.current;
      const scroll = element.scrollTop;
      if (Math.abs(scroll - from.scroll) < 1) return;
      const next = moved(from, scroll, known);
      latest.current.position = next;
      setPosition(next);
      setResting(false);
      clearTimeout(rest);
      rest = setTimeout(() => {
        setResting(true);
        move(latest.current.position.top);
      }, REST);
    };
    element.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      observer.disconnect();
      clearTimeout(rest);
      element.removeEventListener("scroll", scrolled);
    };
  }, [move, scroller]);

  const range = rowsInView(position.top, extent);
  const [settled, setSettled] = useState(range);
  if (resting && (settled[0] !== range[0] || settled[1] !== range[1])) setSettled(range);

  const reveal = useCallback(
    (row: number, how: "least" | "middle" = "least") => {
      const { extent: known, position: at } = latest.current;
      const top = how === "middle" ? centring(row, known) : revealing(row, at.top, known);
      if (top !== at.top) move(top);
    },
    [move],
  );
  const shift = useCallback(
    (by: number) => move(latest.current.position.top + by * latest.current.extent.rowHeight),
    [move],
  );
  const offset = position.top - position.scroll;
  return {
    attach,
    height: elementHeight(extent),
    range,
    settled,
    resting,
    ready: viewport > 0,
    yOf: (row) => row * rowHeight - offset,
    reveal,
    shift,
  };
}
