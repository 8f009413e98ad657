import { useSyncExternalStore } from "react";
import { now as clock } from "../clock";
import { ago, duration, moment } from "./format";

const listeners = new Set<() => void>();
let now = clock();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  now = clock();
  // One clock for the whole page; ages are shown to the nearest few seconds.
  timer ??= setInterval(() => {
    now = clock();
    for (const one of listeners) one();
  }, 5000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time, seconds since the epoch; the component is drawn again every few seconds. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

/** How long ago something was; the title has the moment itself. */
export function Ago({ time }: { readonly time: number }) {
  const at = useNow();
  const known = Number.isFinite(time) && time > 0;
  if (!known) return <span>–</span>;
  return (
    <time dateTime={iso(time)} title={moment(time)}>
      {ago(Math.max(0, at - time))}
    </time>
  );
}

/** A moment, local time. */
export function Moment({ time }: { readonly time: number }) {
  return <time dateTime={iso(time)}>{moment(time)}</time>;
}

/** A stretch of time. */
export function Duration({ seconds }: { readonly seconds: number | null | undefined }) {
  return <span>{duration(seconds)}</span>;
}

function iso(time: number): string | undefined {
  const at = new Date(time * 1000);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}
