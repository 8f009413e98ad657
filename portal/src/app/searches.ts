import { search as cluster } from "../pages/cluster/search";
import { search as compare } from "../pages/compare/search";
import { search as experiment } from "../pages/experiment/search";
import { search as experiments } from "../pages/experiments/search";
import { search as metrics } from "../pages/metrics/search";
import { search as plan } from "../pages/plan/search";
import { search as plans } from "../pages/plans/search";
import { search as playground } from "../pages/playground/search";
import { search as regressions } from "../pages/regressions/search";
import { search as runTask } from "../pages/run-task/search";
import { search as samples } from "../pages/samples/search";
import { search as settings } from "../pages/settings/search";
import { search as stored } from "../pages/stored/search";

/** Pages, and the search parts of their URLs. */
export const SEARCHES = {
  "/": experiments,
  "/e/$experiment": experiment,
  "/e/$experiment/t/$task": runTask,
  "/e/$experiment/t/$task/samples": samples,
  "/compare": compare,
  "/regressions": regressions,
  "/metrics": metrics,
  "/stored/$experiment": stored,
  "/plans": plans,
  "/plans/$definition": plan,
  "/playground": playground,
  "/cluster": cluster,
  "/settings": settings,
} as const;

export type PagePlace = keyof typeof SEARCHES;
