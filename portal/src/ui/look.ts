import { useSyncExternalStore } from "react";
import { keep, kept } from "../storage";

/** How the user wants it; `src/boot/theme.js` reads the same before the first paint. */
export interface Look {
  readonly theme: "system" | "light" | "dark";
  readonly density: "compact" | "comfortable";
}

const DEFAULT: Look = { theme: "system", density: "compact" };
const listeners = new Set<() => void>();
const dark = matchMedia("(prefers-color-scheme: dark)");
let look: Look = { ...DEFAULT, ...kept<Partial<Look>>("look", {}) };

function apply(): void {
  const root = document.documentElement;
  root.dataset["theme"] = shownTheme();
  root.dataset["density"] = look.density;
  for (const listener of listeners) listener();
}

function shownTheme(): "light" | "dark" {
  return look.theme === "system" ? (dark.matches ? "dark" : "light") : look.theme;
}

dark.addEventListener("change", apply);
// Another tab chose.
window.addEventListener("storage", () => {
  look = { ...DEFAULT, ...kept<Partial<Look>>("look", {}) };
  apply();
});

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Changes how it looks, and keeps it. */
export function setLook(change: Partial<Look>): void {
  look = { ...look, ...change };
  keep("look", look);
  apply();
}

/** What was chosen. */
export function useLook(): Look {
  return useSyncExternalStore(subscribe, () => look);
}

/** The theme that is seen. */
export function useTheme(): "light" | "dark" {
  return useSyncExternalStore(subscribe, shownTheme);
}
