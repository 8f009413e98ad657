import type { Failure } from "../api/schema";

/** Failures of one cause as one, however many run tasks reported it; the most frequent first. Pure. */
export function folded(failures: readonly Failure[]): Failure[] {
  const causes = new Map<string, Failure>();
  for (const one of failures) {
    const key = `${one.kind}\n${one.cause}`;
    const before = causes.get(key);
    causes.set(key, before ? both(before, one) : one);
  }
  return [...causes.values()].sort((one, other) => other.count - one.count);
}

function both(one: Failure, other: Failure): Failure {
  return {
    ...one,
    count: one.count + other.count,
    run_tasks: union(one.run_tasks, other.run_tasks),
    models: union(one.models, other.models),
    nodes: union(one.nodes, other.nodes),
    first: edge(one.first, other.first, Math.min),
    last: edge(one.last, other.last, Math.max),
    // Of several failures no single one names the files of all.
    log: one.log === other.log ? one.log : null,
  };
}

function union(one: readonly string[], other: readonly string[]): readonly string[] {
  return [...new Set([...one, ...other])];
}

function edge(one: number | null | undefined, other: number | null | undefined, pick: (a: number, b: number) => number): number | null {
  if (typeof one !== "number") return other ?? null;
  return typeof other === "number" ? pick(one, other) : one;
}
