import { useMemo } from "react";
import { isBundle } from "../../api/bundle";
import { useApi, useApis } from "../../api/hooks";
import type { SampleRow } from "../../api/schema";

/** Samples shown. */
const MOST = 5;

/** Run tasks of an experiment that are asked; where it has more, one of them is to be opened first. */
const TASKS = 4;

const NAMED = "/experiments/{experiment}/run-tasks/{run_task}/samples/named";

/** A run task, and a sample of it. */
export type Named = readonly [task: string, row: SampleRow];

/** Samples whose id holds a text: of the run task whose page this is, or of an experiment with few of them. */
export function useNamed(text: string, experiment: string | undefined, task: string | undefined): { readonly found: readonly Named[]; readonly busy: boolean } {
  const here = text === "" || isBundle() ? undefined : experiment;
  const listed = useApi("/experiments/{experiment}/run-tasks", here && !task ? { path: { experiment: here }, query: { limit: TASKS } } : null, { fresh: 60_000 });
  const few = listed.data && !listed.data.next ? listed.data.items.map(({ name }) => name) : [];
  const tasks = task ? [task] : few;
  const asked = here ? tasks.map((run_task) => ({ path: { experiment: here, run_task }, query: { text, limit: MOST } })) : [];
  const { answers, busy } = useApis(NAMED, asked, { fresh: 10_000 });
  const names = tasks.join("\n");
  const found = useMemo(() => nearest(text, names.split("\n").flatMap((name, at) => (answers[at] ?? []).map((row): Named => [name, row]))), [text, names, answers]);
  return { found, busy: busy || listed.isFetching };
}

/** Those of all run tasks that are called just so first; each run task has put its own in order. */
export function nearest(text: string, all: readonly Named[]): readonly Named[] {
  const same = ([, row]: Named) => row.sample.toLocaleLowerCase() === text.toLocaleLowerCase();
  return [...all.filter(same), ...all.filter((one) => !same(one))].slice(0, MOST);
}
