import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import { filling, fitted, panned, STEP, wheelFactor, zoomed, type Size, type View } from "./zoom";

/** Looking at an image of a size in a frame: where it is, and what moves it. `null` as view: the whole of it. */
export function useZoom(image: Size | null, key: string) {
  const [frame, setFrame] = useState<HTMLElement | null>(null);
  const room = useRoom(frame);
  const [state, setState] = useState<{ key: string; view: View | null }>({ key, view: null });
  // Another image begins as a whole: the state of the last one is not its own.
  const chosen = state.key === key ? state.view : null;
  const view = useMemo(() => (image && room ? (chosen ?? fitted(image, room)) : null), [image, room, chosen]);

  const change = useCallback(
    (make: (view: View, image: Size, room: Size) => View | null) => {
      if (!image || !room) return;
      setState((before) => ({
        key,
        view: make((before.key === key ? before.view : null) ?? fitted(image, room), image, room),
      }));
    },
    [image, room, key],
  );
  const actions = useMemo(
    () => ({
      zoomBy: (factor: number, at?: { x: number; y: number }) =>
        change((from, size, within) => zoomed(from, factor, at ?? middle(within), size, within)),
      panBy: (dx: number, dy: number) => change((from, size, within) => panned(from, dx, dy, size, within)),
      fit: () => change(() => null),
      fill: () => change((_from, size, within) => filling(size, within)),
      actual: () =>
        change((from, size, within) => zoomed(from, 1 / from.scale, middle(within), size, within)),
    }),
    [change],
  );
  useDragging(frame, actions);
  return { attach: setFrame, view, whole: chosen === null, ...actions };
}

type Actions = {
  zoomBy: (factor: number, at?: { x: number; y: number }) => void;
  panBy: (dx: number, dy: number) => void;
};

/** The frame's size, followed. */
function useRoom(frame: HTMLElement | null): Size | null {
  const [room, setRoom] = useState<Size | null>(null);
  useEffect(() => {
    if (!frame) return;
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = frame;
      setRoom(width > 0 && height > 0 ? { width, height } : null);
    });
    observer.observe(frame);
    return () => observer.disconnect();
  }, [frame]);
  return room;
}

/** The wheel zooms, the pointer moves. React's own wheel listeners cannot keep the page from scrolling. */
function useDragging(frame: HTMLElement | null, actions: Actions): void {
  const current = useRef(actions);
  useEffect(() => {
    current.current = actions;
  });
  useEffect(() => {
    if (!frame) return;
    const leave = new AbortController();
    const { signal } = leave;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const box = frame.getBoundingClientRect();
      const at = { x: event.clientX - box.left, y: event.clientY - box.top };
      current.current.zoomBy(wheelFactor(event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY), at);
    };
    let last: { x: number; y: number } | null = null;
    const down = (event: PointerEvent) => {
      if (event.button !== 0) return;
      last = { x: event.clientX, y: event.clientY };
      frame.setPointerCapture(event.pointerId);
    };
    const move = (event: PointerEvent) => {
      if (!last) return;
      current.current.panBy(event.clientX - last.x, event.clientY - last.y);
      last = { x: event.clientX, y: event.clientY };
    };
    const up = () => (last = null);
    frame.addEventListener("wheel", wheel, { passive: false, signal });
    frame.addEventListener("pointerdown", down, { signal });
    frame.addEventListener("pointermove", move, { signal });
    frame.addEventListener("pointerup", up, { signal });
    frame.addEventListener("pointercancel", up, { signal });
    return () => leave.abort();
  }, [frame]);
}

function middle(room: Size): { x: number; y: number } {
  return { x: room.width / 2, y: room.height / 2 };
}

export { STEP };
