import { createHashHistory, createRootRoute, createRoute, createRouter, lazyRouteComponent, type RouterHistory } from "@tanstack/react-router";
import type { ComponentType } from "react";
import { Frame } from "./Frame";
import { PageFault } from "./PageFault";
import { parseSearch, stringifySearch } from "./search";
import { type PagePlace, SEARCHES } from "./searches";

type Load = () => Promise<{ default: ComponentType }>;

const root = createRootRoute({ component: Frame });

function page<P extends PagePlace>(path: P, load: Load) {
  const search = SEARCHES[path];
  return createRoute({
    getParentRoute: () => root,
    path,
    validateSearch: (raw: Record<string, unknown>) => search.validate(raw) as ReturnType<(typeof SEARCHES)[P]["validate"]>,
    component: lazyRouteComponent(load),
  });
}

const tree = root.addChildren([
  page("/", () => import("../pages/experiments")),
  page("/e/$experiment", () => import("../pages/experiment")),
  page("/e/$experiment/t/$task", () => import("../pages/run-task")),
  page("/e/$experiment/t/$task/samples", () => import("../pages/samples")),
  page("/compare", () => import("../pages/compare")),
  page("/regressions", () => import("../pages/regressions")),
  page("/metrics", () => import("../pages/metrics")),
  page("/stored/$experiment", () => import("../pages/stored")),
  page("/plans", () => import("../pages/plans")),
  page("/plans/$definition", () => import("../pages/plan")),
  page("/playground", () => import("../pages/playground")),
  page("/cluster", () => import("../pages/cluster")),
  page("/settings", () => import("../pages/settings")),
]);

/** The pages; hash history works under any prefix, and without a server. */
export function makeRouter(history: RouterHistory = createHashHistory()) {
  return createRouter({
    routeTree: tree,
    history,
    parseSearch,
    stringifySearch,
    defaultPreload: "intent",
    defaultPreloadDelay: 80,
    scrollRestoration: true,
    defaultErrorComponent: PageFault,
    defaultNotFoundComponent: () => <PageFault error={new Error("There is no such page.")} />,
    defaultStructuralSharing: true,
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
