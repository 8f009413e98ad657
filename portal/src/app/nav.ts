import { isBundle } from "../api/bundle";
import type { IconName } from "../ui/Icon";

/** All pages that a portal has. */
export const PAGES = [
  { to: "/", label: "Experiments", icon: "experiments" },
  { to: "/compare", label: "Compare", icon: "compare" },
  { to: "/regressions", label: "Regressions", icon: "regressions" },
  { to: "/metrics", label: "Metrics", icon: "chart" },
  { to: "/plans", label: "Plans", icon: "plans" },
  { to: "/playground", label: "Playground", icon: "play" },
  { to: "/cluster", label: "Cluster", icon: "cluster" },
  { to: "/settings", label: "Settings", icon: "settings" },
] as const satisfies readonly { to: string; label: string; icon: IconName }[];

/** The pages that the rail and the palette lead to. A bundle has one experiment, and nothing that only a portal can do. */
export function pages(): readonly (typeof PAGES)[number][] {
  return isBundle() ? PAGES.filter(({ to }) => to === "/") : PAGES;
}

/** Whether the page of a path exists: a typed or stored address may name a page that a bundle does not have. */
export function isHere(path: string): boolean {
  return !isBundle() || path === "/" || path === "/settings" || path.startsWith("/e/");
}
