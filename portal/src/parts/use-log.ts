import { useCallback, useEffect, useRef, useState } from "react";
import { ask, FaultError } from "../api";
import type { LogChunk } from "../api/schema";
import { onNews } from "../app/live";
import { appended, beginOf, EMPTY, endOf, fresh, hasLater, type LogBuffer, prepended } from "./log-buffer";

/** Lines asked for at once: the most that the server gives. */
const LINES = 1000;

/** Milliseconds between looks at a log that is followed. */
const EVERY = 2000;

/** Finds wanted before a search stops reading back by itself, and pieces it reads at most. */
const FINDS = 50;
const PIECES = 60;

export interface LogOptions {
  /** Only lines with these words; empty: all. */
  readonly grep: string;
  /** Where to begin, bytes; null: at the end. */
  readonly at: number | null;
  /** Whether what comes is wanted. */
  readonly follow: boolean;
}

export interface ReadLog {
  readonly buffer: LogBuffer;
  /** Offsets of lines that look like errors, towards the end of the whole log. */
  readonly errors: readonly number[];
  readonly fault: FaultError | null;
  readonly loading: boolean;
  readonly hasEarlier: boolean;
  readonly hasLater: boolean;
  earlier(): Promise<void>;
  later(): Promise<void>;
  /** Goes to another place of the log, with some lines before it; null: to its end. */
  go(at: number | null): Promise<void>;
}

interface Held {
  readonly buffer: LogBuffer;
  readonly errors: readonly number[];
}

interface Where {
  readonly after?: number;
  readonly before?: number;
}

/** A log that is read by stretches, and followed while the user looks. */
export function useLog(experiment: string, log: string, { grep, at, follow }: LogOptions): ReadLog {
  const [held, setHeld] = useState<Held | null>(null);
  const [fault, setFault] = useState<FaultError | null>(null);
  const newest = useRef<LogBuffer>(EMPTY);
  const busy = useRef<AbortController | null>(null);

  const read = useCallback(
    async (where: Where, take: (answer: LogChunk) => LogBuffer): Promise<boolean> => {
      if (busy.current) return false;
      const controller = new AbortController();
      busy.current = controller;
      try {
        const query = { ...where, lines: LINES, grep };
        const answer = await ask("/experiments/{experiment}/logs/{log}", { path: { experiment, log }, query }, controller.signal);
        // It may have been given up meanwhile.
        if (controller.signal.aborted) return false;
        // Lines of a search do not follow each other: they have no numbers.
        const buffer = take(grep ? { ...answer, first: null } : answer);
        newest.current = buffer;
        setHeld((before) => {
          const errors = before?.errors.join() === answer.errors.join() ? before.errors : answer.errors;
          return before?.buffer === buffer && before.errors === errors ? before : { buffer, errors };
        });
        setFault(null);
        return true;
      } catch (error) {
        if (error instanceof FaultError) setFault(error);
        return false;
      } finally {
        if (busy.current === controller) busy.current = null;
      }
    },
    [experiment, log, grep],
  );

  const earlier = useCallback(async () => {
    await read({ before: beginOf(newest.current) }, (answer) => prepended(newest.current, answer));
  }, [read]);
  const later = useCallback(async () => {
    await read({ after: endOf(newest.current) }, (answer) => appended(newest.current, answer));
  }, [read]);
  const go = useCallback(
    async (to: number | null) => {
      if (!(await read(to === null ? {} : { after: to }, fresh))) return;
      if (to !== null && beginOf(newest.current) > 0) await earlier();
      // A search answers with what it saw in its time: it continues until there is something to look at.
      for (let piece = 0; grep && piece < PIECES && beginOf(newest.current) > 0; piece += 1) {
        if (newest.current.stretches.reduce((sum, one) => sum + one.lines.length, 0) >= FINDS) break;
        const before = newest.current;
        await earlier();
        if (newest.current === before) break;
      }
    },
    [read, earlier, grep],
  );

  const start = useRef(at);
  useEffect(() => {
    newest.current = EMPTY;
    // A moment later: in development effects run twice, and the first request would be given up.
    const soon = setTimeout(() => void go(grep ? null : start.current), 0);
    return () => {
      clearTimeout(soon);
      busy.current?.abort();
      busy.current = null;
      setHeld(null);
    };
  }, [go, grep]);

  useEffect(() => {
    if (!follow) return undefined;
    const look = () => {
      if (!document.hidden && newest.current !== EMPTY) void later();
    };
    const timer = setInterval(look, EVERY);
    const stop = onNews((news) => {
      if (news.kind === "experiment" && news.experiment === experiment) look();
    });
    return () => {
      clearInterval(timer);
      stop();
    };
  }, [follow, later, experiment]);

  const buffer = held?.buffer ?? EMPTY;
  return {
    buffer,
    errors: held?.errors ?? [],
    fault,
    loading: held === null && fault === null,
    hasEarlier: beginOf(buffer) > 0,
    hasLater: hasLater(buffer),
    earlier,
    later,
    go,
  };
}
