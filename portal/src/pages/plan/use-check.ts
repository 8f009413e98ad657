import { useCallback, useEffect, useRef, useState } from "react";
import { FaultError, send } from "../../api";
import type { Checked } from "../../api/schema";
import type { DefinitionKind } from "./kinds";

export interface CheckTarget {
  readonly kind: DefinitionKind;
  /** The definition; null: a new one. */
  readonly id: string | null;
  /** Name of a new one. */
  readonly name: string | null;
}

export interface Check {
  /** What was found last. */
  readonly found: Checked | null;
  /** The last one with an estimate. */
  readonly estimated: Checked | null;
  /** Whether the text was changed since that estimate. */
  readonly outdated: boolean;
  readonly running: boolean;
  readonly estimating: boolean;
  readonly fault: Error | null;
  /** Checks now, with an estimate. */
  readonly estimate: () => void;
}

interface Answered {
  readonly text: string;
  readonly found: Checked;
}

const REST = 600;
const BUSY = 1000;
const TRIES = 8;

async function asked(target: CheckTarget, text: string, estimate: boolean, wanted: () => boolean): Promise<Checked> {
  for (let tried = 0; ; tried += 1) {
    try {
      return await send("post", "/definitions/check", {}, { ...target, text, estimate });
    } catch (error) {
      const busy = error instanceof FaultError && error.fault.code === "busy";
      if (!busy || tried >= TRIES || !wanted()) throw error;
      await new Promise((done) => setTimeout(done, BUSY));
    }
  }
}

/** Has a text checked while it is typed: the newest text wins, older answers are forgotten. */
export function useCheck(target: CheckTarget, text: string): Check {
  const [answered, setAnswered] = useState<Answered | null>(null);
  const [estimated, setEstimated] = useState<Answered | null>(null);
  const [running, setRunning] = useState(0);
  const [estimating, setEstimating] = useState(false);
  const [fault, setFault] = useState<Error | null>(null);
  const newest = useRef(0);
  const { kind, id, name } = target;
  const run = useCallback(
    async (given: string, estimate: boolean) => {
      const turn = ++newest.current;
      setRunning((count) => count + 1);
      if (estimate) setEstimating(true);
      try {
        const found = await asked({ kind, id, name }, given, estimate, () => turn === newest.current || estimate);
        if (estimate) setEstimated({ text: given, found });
        if (turn !== newest.current) return;
        setAnswered({ text: given, found });
        setFault(null);
      } catch (error) {
        if (turn === newest.current) setFault(error as Error);
      } finally {
        setRunning((count) => count - 1);
        if (estimate) setEstimating(false);
      }
    },
    [kind, id, name],
  );
  useEffect(() => {
    const timer = setTimeout(() => void run(text, false), REST);
    return () => clearTimeout(timer);
  }, [text, run]);
  return {
    found: answered?.found ?? null,
    estimated: estimated?.found ?? null,
    outdated: estimated !== null && estimated.text !== text,
    running: running > 0,
    estimating,
    fault,
    estimate: () => void run(text, true),
  };
}
