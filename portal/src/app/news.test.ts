import { QueryClient } from "@tanstack/react-query";
import { describe, expect, it, vi } from "vitest";
import type { ExperimentNews } from "../api/schema";
import { keyOf } from "../api/hooks";
import { concerns, followNews, patch } from "./news";

const NEWS: ExperimentNews = {
  kind: "experiment",
  seq: 1,
  time: 50,
  experiment: "e1",
  state: "running",
  answered: 7,
  samples: 10,
  progress: [{ run_task: "t1", state: "running", answered: 7, samples: 10, rate: 2 }],
  changed: ["progress"],
};

const LIST = [...keyOf("/experiments", { query: { limit: 5 } }), "pages", 100];
const TASKS = keyOf("/experiments/{experiment}/run-tasks", { path: { experiment: "e1" } });
const OTHERS = keyOf("/experiments/{experiment}/run-tasks", { path: { experiment: "e2" } });
const DETAIL = keyOf("/experiments/{experiment}", { path: { experiment: "e1" } });

describe("counts in news", () => {
  it("are put into every list and page that shows them, and nowhere else", () => {
    const client = new QueryClient();
    const other = { id: "e2", run_tasks: 1, answered: 1, samples: 2, state: "done" };
    client.setQueryData(LIST, { pages: [{ items: [{ id: "e1", run_tasks: 1, answered: 1, samples: 10, state: "pending" }, other], next: null, total: 2 }], pageParams: [null] });
    client.setQueryData(TASKS, { items: [{ experiment: "e1", name: "t1", answered: 0, samples: 10, state: "pending" }], next: null });
    const elsewhere = { items: [{ experiment: "e2", name: "t1", answered: 0, samples: 10, state: "pending" }], next: null };
    client.setQueryData(OTHERS, elsewhere);
    client.setQueryData(DETAIL, { row: { id: "e1", run_tasks: 1, answered: 0, samples: 10 }, matrices: [{ rows: [{ cells: [{ run_task: "t1", answered: 0, samples: 10, state: "pending" }, null] }] }] });

    patch(client, NEWS);

    expect(client.getQueryData(LIST)).toMatchObject({ pages: [{ items: [{ answered: 7, state: "running", updated: 50 }, other] }] });
    expect(client.getQueryData(TASKS)).toMatchObject({ items: [{ answered: 7, state: "running", rate: 2 }] });
    expect(client.getQueryData(OTHERS)).toBe(elsewhere);
    expect(client.getQueryData(DETAIL)).toMatchObject({ row: { answered: 7 }, matrices: [{ rows: [{ cells: [{ answered: 7, state: "running" }, null] }] }] });
  });
});

describe("answers that are asked for again", () => {
  const asks = (path: string, ids: Record<string, string> | undefined, ...changed: ExperimentNews["changed"][number][]) =>
    concerns({ queryKey: keyOf(path, { path: ids }) }, "e1", new Set(changed));

  it("are those of the experiment", () => {
    expect(asks("/experiments/{experiment}", { experiment: "e1" }, "progress")).toBe(true);
    expect(asks("/experiments/{experiment}", { experiment: "e2" }, "state")).toBe(false);
  });

  it("are lists over all, once more than a count has changed", () => {
    expect(asks("/experiments", undefined, "progress")).toBe(false);
    expect(asks("/experiments", undefined, "progress", "state")).toBe(true);
  });

  it("are not figures while only counts move, nor logs ever", () => {
    expect(asks("/experiments/{experiment}/figures/{figure}", { experiment: "e1" }, "progress")).toBe(false);
    expect(asks("/experiments/{experiment}/figures/{figure}", { experiment: "e1" }, "scores")).toBe(true);
    expect(asks("/experiments/{experiment}/logs/{log}", { experiment: "e1" }, "state")).toBe(false);
  });

  it("are asked for together, however many messages there are", async () => {
    vi.useFakeTimers();
    const client = new QueryClient();
    const again = vi.spyOn(client, "invalidateQueries").mockResolvedValue();
    const hear = followNews(client);
    for (let seq = 0; seq < 50; seq += 1) hear({ ...NEWS, seq, changed: ["state"] });
    await vi.advanceTimersByTimeAsync(600);
    expect(again).toHaveBeenCalledOnce();
    hear({ ...NEWS, changed: ["progress"] });
    await vi.advanceTimersByTimeAsync(600);
    expect(again).toHaveBeenCalledOnce();
    hear({ ...NEWS, changed: ["failures"] });
    await vi.advanceTimersByTimeAsync(600);
    expect(again).toHaveBeenCalledTimes(2);
  });
});
