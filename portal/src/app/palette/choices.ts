import { type NavigateOptions, useParams } from "@tanstack/react-router";
import { useDeferredValue, useMemo } from "react";
import { isBundle } from "../../api/bundle";
import { useApi } from "../../api/hooks";
import type { Hit, SampleRow } from "../../api/schema";
import { copyText } from "../../ui/copy";
import type { IconName } from "../../ui/Icon";
import { setLook } from "../../ui/look";
import { toast } from "../../ui/toast";
import { pages } from "../nav";
import { signOut } from "../session";
import { useNamed } from "./samples";
import { outcomeLook } from "../../ui/states";

/** Something to choose in the palette: it leads somewhere, or does something. */
export interface Choice {
  readonly id: string;
  readonly group: string;
  readonly icon: IconName;
  readonly name: string;
  readonly detail?: string;
  readonly to?: NavigateOptions;
  readonly act?: () => void;
}

const ICONS: Readonly<Record<Hit["kind"], IconName>> = { experiment: "experiments", plan: "plans", model: "cluster", dataset: "table", run_task: "play" };
const GROUPS: Readonly<Record<Hit["kind"], string>> = { experiment: "Experiments", plan: "Plans", model: "Models", dataset: "Datasets", run_task: "Run tasks" };

/** Hits that are shown; more words find the others. */
const MOST = 50;

/** Where a hit leads. */
export function choiceOf(hit: Hit): Choice {
  const { kind, name, experiment } = hit;
  const base = { id: `${kind} ${name} ${experiment ?? ""}`, group: GROUPS[kind], icon: ICONS[kind], name, detail: hit.detail };
  if (kind === "experiment") return { ...base, to: { to: "/e/$experiment", params: { experiment: name } } };
  if (kind === "run_task" && experiment) return { ...base, detail: `${experiment} · ${hit.detail}`, to: { to: "/e/$experiment/t/$task", params: { experiment, task: name } } };
  return { ...base, to: { to: "/", search: { [kind]: [name] } } };
}

/** A sample that is called so: where it is shown. */
function sampleChoice(experiment: string, task: string, row: SampleRow): Choice {
  const { place, sample, outcome } = row;
  const to = { to: "/e/$experiment/t/$task/samples", params: { experiment, task }, search: { at: place } as never } as const;
  return { id: `sample ${task} ${place}`, group: "Samples", icon: "table", name: sample, detail: `${experiment} · ${task}, ${outcomeLook(outcome).word}`, to };
}

/** All samples of a run task with a text in what was asked or answered. */
function holding(text: string, experiment: string, task: string): Choice {
  const to = { to: "/e/$experiment/t/$task/samples", params: { experiment, task }, search: { text } as never } as const;
  return { id: "samples", group: "Samples", icon: "search", name: `Samples with “${text}”`, detail: `${experiment} · ${task}`, to };
}

function actions(): readonly Choice[] {
  const group = "Actions";
  const look = (theme: "light" | "dark" | "system", icon: IconName): Choice => ({ id: `theme ${theme}`, group, icon, name: `Theme: ${theme}`, act: () => setLook({ theme }) });
  const found: Choice[] = [
    { id: "copy link", group, icon: "link", name: "Copy link to this page", act: () => void copyText(location.href).then((done) => toast(done ? "Link copied" : "The browser did not allow the copy")) },
    look("light", "sun"),
    look("dark", "moon"),
    look("system", "screen"),
    { id: "compact", group, icon: "menu", name: "Rows: compact", act: () => setLook({ density: "compact" }) },
    { id: "comfortable", group, icon: "menu", name: "Rows: comfortable", act: () => setLook({ density: "comfortable" }) },
  ];
  if (!isBundle()) found.push({ id: "sign out", group, icon: "key", name: "Sign out", act: () => void signOut().catch(() => toast("The portal cannot be reached")) });
  return found;
}

function places(): readonly Choice[] {
  return pages().map(({ to, label, icon }) => ({ id: to, group: "Pages", icon, name: label, to: { to } }));
}

/** Whether a name contains every word of a text. */
export function fits(name: string, text: string): boolean {
  const folded = name.toLocaleLowerCase();
  return text.toLocaleLowerCase().split(/\s+/).every((word) => folded.includes(word));
}

/** What can be chosen for a text. */
export function useChoices(text: string): { readonly choices: readonly Choice[]; readonly busy: boolean; readonly more: boolean } {
  const asked = useDeferredValue(text.trim());
  const ids: { readonly experiment?: string; readonly task?: string } = useParams({ strict: false });
  const { data, isFetching } = useApi("/search", asked === "" || isBundle() ? null : { query: { text: asked, limit: MOST } }, { keep: true, fresh: 10_000 });
  const { experiment, task } = ids;
  const named = useNamed(asked, experiment, task);
  const choices = useMemo(() => {
    const own = [...places(), ...actions()].filter((choice) => fits(choice.name, asked));
    const hits = asked === "" ? [] : (data ?? []).map(choiceOf);
    const samples = experiment ? named.found.map(([of, row]) => sampleChoice(experiment, of, row)) : [];
    if (experiment && task && asked !== "" && !isBundle()) samples.push(holding(asked, experiment, task));
    const all = [...samples, ...hits, ...own];
    // One group behind the other, in the order in which they first come.
    const groups = [...new Set(all.map((choice) => choice.group))];
    return groups.flatMap((group) => all.filter((choice) => choice.group === group));
  }, [asked, data, named.found, experiment, task]);
  return { choices, busy: isFetching || named.busy || asked !== text.trim(), more: asked !== "" && data?.length === MOST };
}
