import type { InfiniteData, Query, QueryClient } from "@tanstack/react-query";
import type { ExperimentNews, MatrixCell, Progress } from "../api/schema";
import type { AnyParams, News } from "../api/types";

type Change = ExperimentNews["changed"][number];

/** Milliseconds: answers are fetched again at most so often; while only counts move, which are patched, seldom. */
const SOON = 500;
const LATER = 5000;
/** What never changes by news, or follows it by itself. */
const BESIDES = /\/(logs|provenance|configuration|report)\b|^\/(session|tokens|definitions|schemas|submissions|compare)\b/;

interface Waiting {
  readonly changed: Set<Change>;
  timer: ReturnType<typeof setTimeout>;
  due: number;
}

/** Keeps what is shown true: patches counts in place, and fetches again what news says has changed. */
export function followNews(client: QueryClient): (news: News) => void {
  const waiting = new Map<string, Waiting>();
  const flush = (experiment: string) => {
    const found = waiting.get(experiment);
    waiting.delete(experiment);
    if (found) void client.invalidateQueries({ predicate: (query) => concerns(query, experiment, found.changed) });
  };
  const wait = (experiment: string, changed: readonly Change[]) => {
    const delay = changed.every((one) => one === "progress" || one === "resources") ? LATER : SOON;
    const due = Date.now() + delay;
    const found = waiting.get(experiment);
    for (const one of changed) found?.changed.add(one);
    if (found && found.due <= due) return;
    clearTimeout(found?.timer);
    const timer = setTimeout(() => flush(experiment), delay);
    waiting.set(experiment, { changed: found?.changed ?? new Set(changed), timer, due });
  };
  return (news) => {
    if (news.kind === "reset") void client.invalidateQueries();
    else if (news.kind === "cluster") void client.invalidateQueries({ queryKey: ["api", "/cluster"] });
    else {
      patch(client, news);
      wait(news.experiment, news.changed);
    }
  };
}

/** Whether an answer may be another one now. */
export function concerns(query: Pick<Query, "queryKey">, experiment: string, changed: ReadonlySet<Change>): boolean {
  const [root, path, ids, asked] = query.queryKey as [unknown, string | undefined, AnyParams["path"], AnyParams["query"]];
  if (root !== "api" || path === undefined || BESIDES.test(path)) return false;
  const more = (["state", "scores", "failures", "new", "gone"] as const).some((one) => changed.has(one));
  const named = ids?.["experiment"] ?? asked?.["experiment"];
  if (named !== undefined) return named === experiment && (more || !path.includes("/figures/"));
  // Lists over all experiments: their counts are patched, their order and facets follow what is more than a count.
  return more;
}

type Row = Readonly<Record<string, unknown>>;

/** Puts new counts into everything that shows them. */
export function patch(client: QueryClient, news: ExperimentNews): void {
  const tasks = new Map(news.progress.map((one) => [one.run_task, one]));
  const change = (value: unknown): unknown => renewed(value, news, tasks);
  const queries = client.getQueryCache().findAll({ predicate: ({ queryKey }) => queryKey[0] === "api" && shows(queryKey, news.experiment) });
  for (const query of queries) {
    const next = change(query.state.data);
    // The time of the answer stays: it is still the old one, but for its counts.
    if (next !== query.state.data) client.setQueryData(query.queryKey, next, { updatedAt: query.state.dataUpdatedAt });
  }
}

function shows(key: readonly unknown[], experiment: string): boolean {
  const path = String(key[1]);
  const ids = key[2] as AnyParams["path"];
  const named = ids?.["experiment"];
  return /^\/(experiments|run-tasks)(\/\{\w+\})?(\/run-tasks(\/\{\w+\})?)?$/.test(path) && (named === undefined || named === experiment);
}

function renewed(value: unknown, news: ExperimentNews, tasks: ReadonlyMap<string, Progress>): unknown {
  if (typeof value !== "object" || value === null) return value;
  if ("pages" in value) {
    const { pages, ...rest } = value as InfiniteData<unknown>;
    return either(value, pages, (page) => renewed(page, news, tasks), (next) => ({ ...rest, pages: next }));
  }
  if ("items" in value) {
    const items = (value as { items: readonly Row[] }).items;
    return either(value, items, (row) => rowOf(row, news, tasks), (next) => ({ ...value, items: next }));
  }
  if (!("row" in value)) return value;
  const row = rowOf((value as { row: Row }).row, news, tasks);
  if (!("matrices" in value)) return row === value.row ? value : { ...value, row };
  return { ...value, row, matrices: (value.matrices as readonly MatrixLike[]).map((one) => matrixOf(one, tasks)) };
}

/** The same thing where nothing in it changed: what is drawn from it is not drawn again. */
function either<T>(same: unknown, items: readonly T[], change: (item: T) => unknown, make: (next: readonly unknown[]) => unknown): unknown {
  const next = items.map(change);
  return next.every((item, place) => item === items[place]) ? same : make(next);
}

function rowOf(row: Row, news: ExperimentNews, tasks: ReadonlyMap<string, Progress>): Row {
  if ("run_tasks" in row) return row["id"] === news.experiment ? { ...row, state: news.state, answered: news.answered, samples: news.samples, updated: news.time } : row;
  const found = row["experiment"] === news.experiment ? tasks.get(String(row["name"])) : undefined;
  return found ? { ...row, state: found.state, answered: found.answered, samples: found.samples, rate: found.rate } : row;
}

interface MatrixLike {
  readonly rows: readonly { readonly cells: readonly (MatrixCell | null)[] }[];
}

function matrixOf(matrix: MatrixLike, tasks: ReadonlyMap<string, Progress>): MatrixLike {
  const rows = matrix.rows.map((row) => ({ ...row, cells: row.cells.map((cell) => cellOf(cell, tasks)) }));
  return { ...matrix, rows };
}

function cellOf(cell: MatrixCell | null, tasks: ReadonlyMap<string, Progress>): MatrixCell | null {
  const found = cell && tasks.get(cell.run_task);
  return found ? { ...cell, state: found.state, answered: found.answered, samples: found.samples } : cell;
}
