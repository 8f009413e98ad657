import { useEffect, useRef, useSyncExternalStore } from "react";

/** A key (`j`, `mod+k`, `shift+g`, `?`, `Escape`) → what it does in words, and how. */
export type Hotkeys = Readonly<Record<string, readonly [help: string, act: (event: KeyboardEvent) => void]>>;

/** Whether the keys are those of a Mac. */
export const MAC = navigator.userAgent.includes("Mac OS");

interface Group {
  readonly title: string;
  keys: Hotkeys;
}

let groups: readonly Group[] = [];
const listeners = new Set<() => void>();

function change(next: readonly Group[]): void {
  groups = next;
  for (const listener of listeners) listener();
}

/** The name of a pressed key, as `Hotkeys` write it. */
export function pressed(event: KeyboardEvent): string {
  const single = event.key.length === 1;
  const parts = [];
  if (event.ctrlKey || event.metaKey) parts.push("mod");
  if (event.altKey) parts.push("alt");
  if (event.shiftKey && (!single || /[a-z]/i.test(event.key))) parts.push("shift");
  return [...parts, single ? event.key.toLowerCase() : event.key].join("+");
}

function typing(event: KeyboardEvent): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=range])");
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  const name = pressed(event);
  // A window over the page has the keys for itself.
  const blocked = document.querySelector("dialog[open]") !== null;
  for (const group of [...groups].reverse()) {
    const found = group.keys[name];
    if (!found || ((typing(event) || blocked) && !name.startsWith("mod+"))) continue;
    event.preventDefault();
    found[1](event);
    return;
  }
}

/** Keys that work while a component is shown, and their help; what was mounted last wins. */
export function useHotkeys(keys: Hotkeys, title: string): void {
  const newest = useRef(keys);
  useEffect(() => {
    newest.current = keys;
  });
  const names = Object.entries(keys)
    .map(([key, [help]]) => `${key}\n${help}`)
    .join("\n\n");
  useEffect(() => {
    const bound = names.split("\n\n").filter(Boolean).map((line) => {
      const [key = "", help = ""] = line.split("\n");
      return [key, [help, (event: KeyboardEvent) => newest.current[key]?.[1](event)]] as const;
    });
    const group = { title, keys: Object.fromEntries(bound) };
    if (groups.length === 0) document.addEventListener("keydown", onKey);
    // Keys that work everywhere give way to a page's own, whichever was mounted first.
    change(title === "Everywhere" ? [group, ...groups] : [...groups, group]);
    return () => {
      change(groups.filter((one) => one !== group));
      if (groups.length === 0) document.removeEventListener("keydown", onKey);
    };
  }, [names, title]);
}

/** All keys that work now, for the help. */
export function useKeyGroups(): readonly { readonly title: string; readonly keys: Hotkeys }[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => groups,
  );
}
