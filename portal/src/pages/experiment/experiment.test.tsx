import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { ExperimentDetail, MatrixCell } from "../../api/schema";
import { renderAt, serve } from "../../testing";

const cell = (run_task: string, rest: Partial<MatrixCell> = {}): MatrixCell => ({ run_task, state: "running", answered: 25, samples: 100, leads: false, score: null, ...rest });

const score = { metric: "anls", value: 0.8731, low: 0.85, high: 0.89, n: 100, documents: 20, higher_is_better: true, unit: "", standing: "" };

const DETAIL: ExperimentDetail = {
  row: {
    id: "e1", plan: "hard words", state: "running", created: 1, updated: 2, owner: "ada", models: ["a", "b"], datasets: ["d", "e"], run_tasks: 4,
    tasks_by_state: { done: 1, running: 3 }, samples: 400, answered: 175, scored: 0, rate: 2.5, eta: "14:14–14:26", score: null, gpu_hours: null, failures: 1,
    verdict: "NO-GO", baselines: ["main"], trend: [], scores: [],
  },
  status: null,
  sentence: "1 of 4 run tasks done, 1 failed.",
  matrices: [
    {
      ml_task: "vqa", metric: "anls", higher_is_better: true, columns: ["d", "e"],
      rows: [
        { model: "a", variant: "", cells: [cell("a-d", { state: "done", answered: 100, score, leads: true }), cell("a-e")] },
        { model: "b", variant: "", cells: [cell("b-d", { state: "failed", answered: 0 }), null] },
      ],
    },
  ],
  failures: [{ cause: "CUDA out of memory <b>", kind: "engine_died", count: 3, run_tasks: ["b-d"], models: ["b"], nodes: ["gpu07"], first: 1, last: 2, log: null }],
  waits: [{ job: "4711", step: "g0", count: 12, why: "waits for free GPUs", reason: "Resources" }],
  usage: { gpu_hours: 4, gpu_hours_used: 3, gpu_hours_wasted: 1, queue_wait: null },
  summary: [], verdict: null, figures: [], reports: ["report.html", "report.md"],
};

const NOTHING = { items: [], next: null, total: 0, counted_to: 10_000 };

it("pauses and cancels an experiment from the page, once it is confirmed", async () => {
  const session = { user: "ada", host: "h", version: "1", home: "/", mode: "dev", may_edit: false, may_submit: true, expires: Date.now() / 1000 + 900, tunnel: "", news: 0 };
  const command = { submission: "c1", verb: "cancel", definition: null, name: "e1", started: 1, id: null, log: ["cancelled 3 jobs"], state: "done" };
  const { asked } = serve({ "/experiments/e1": DETAIL, "/experiments/e1/run-tasks": NOTHING, "/session": session, "POST /submissions/actions": command, "/submissions/c1": command });
  await renderAt("/e/e1");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Actions" }));
  expect(screen.queryByRole("button", { name: "Resume" })).toBeNull();
  await user.click(screen.getByRole("button", { name: "Cancel jobs" }));
  const dialog = await screen.findByRole("dialog", { name: "Cancel jobs: hard words?" });
  expect(within(dialog).getByText("hpcbench cancel e1")).toBeTruthy();
  expect(asked.some(({ init }) => init.method === "POST")).toBe(false);
  await user.click(within(dialog).getByRole("button", { name: "Cancel jobs" }));
  expect((await screen.findByRole("log")).textContent).toContain("cancelled 3 jobs");
  const sent = asked.find(({ init }) => init.method === "POST");
  expect(JSON.parse(sent?.init.body as string)).toEqual({ experiment: "e1", action: "cancel" });
});

it("opens logs at the first error of the process that failed", async () => {
  const failure = { cause: "CUDA out of memory", kind: "engine_died", count: 1, run_tasks: ["b-d"], models: ["b"], nodes: [], first: 1, last: 2, log: "/home/e1/workers/g1.7_0-0.log" };
  const source = (id: string, updated: number) => ({ id, title: `engine ${id}`, kind: "engine", size: 60, updated });
  const lines = ["starting", "torch.OutOfMemoryError: CUDA", "Traceback"].map((text, at) => ({ number: at + 1, at: at * 20, text, continued: false, level: at ? "error" : "" }));
  serve({
    "/experiments/e1": { ...DETAIL, failures: [failure] }, "/experiments/e1/run-tasks": NOTHING,
    "/experiments/e1/logs": [source("workers.g0.7_1-0.log", 99), source("workers.g1.7_0-0.log", 5)],
    "/experiments/e1/logs/workers.g1.7_0-0.log": { lines, first: 1, begin: 0, end: 60, size: 60, errors: [20, 40] },
  });
  const { history } = await renderAt("/e/e1?tab=logs");
  await screen.findByText("torch.OutOfMemoryError: CUDA");
  await waitFor(() => expect(history.location.search).toContain("at=20"));
  expect(screen.getByRole("button", { name: /workers.g1.7_0-0.log/ }).getAttribute("aria-current")).toBe("true");
});

it("compares the configuration with a run of any plan, and shows all settings", async () => {
  const found = { items: [{ ...DETAIL.row, id: "other" }], next: null, total: 1, counted_to: 10_000 };
  const { asked } = serve({
    "/experiments/e1": DETAIL, "/experiments/e1/run-tasks": NOTHING, "/experiments": found,
    "/experiments/e1/configuration": { baseline: null, why: "", differences: [] },
    "/experiments/e1/configuration/whole": { plan: { shard_size: 7 }, site: {}, run_tasks: { "a-d": { seed: 3 } }, total: 80 },
  });
  await renderAt("/e/e1?tab=config");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Another run" }));
  await user.click(await screen.findByRole("button", { name: "other" }));
  await waitFor(() => expect(asked.some(({ url }) => url.searchParams.get("baseline") === "other")).toBe(true));
  expect(screen.getByText(/"shard_size": 7/)).toBeTruthy();
  expect(screen.getByText(/"seed": 3/)).toBeTruthy();
  expect(screen.getByText(/Of 80 run tasks the first 1 are here/)).toBeTruthy();
});

it("offers no action to a portal that only shows", async () => {
  await open();
  await screen.findByRole("button", { name: "Commands" });
  expect(screen.queryByRole("button", { name: "Actions" })).toBeNull();
});

function open(tab = "") {
  serve({ "/experiments/e1": DETAIL, "/experiments/e1/run-tasks": NOTHING });
  return renderAt(`/e/e1${tab ? `?tab=${tab}` : ""}`);
}

describe("the page of an experiment", () => {
  it("says how it stands, what went wrong and what it waits for", async () => {
    await open();
    await screen.findByRole("heading", { level: 1, name: /hard words/ });
    expect(screen.getByText("1 of 4 run tasks done, 1 failed.")).toBeTruthy();
    expect(screen.getByText("CUDA out of memory <b>")).toBeTruthy();
    expect(screen.getByText("waits for free GPUs")).toBeTruthy();
    expect(screen.getByText("14:14–14:26")).toBeTruthy();
    expect(screen.getByText("75 % with requests in flight")).toBeTruthy();
  });

  it("tells each cell of the matrix in words: score with interval, or how far", async () => {
    await open();
    const grid = await screen.findByRole("grid", { name: /models in rows, datasets in columns/ });
    const scored = within(grid).getByRole("link", { name: /^a, d: anls 0\.873 ?0\.850 – 0\.890/ });
    expect(scored.title).toMatch(/anls 0\.873, 95 % interval 0\.850 to 0\.890, n = 100, best value of its dataset; done/);
    expect(within(grid).getByRole("link", { name: /^a, e running/ }).title).toContain("running; 25 of 100 samples done");
    expect(within(grid).getByLabelText("no run task")).toBeTruthy();
  });

  it("is walked with arrows, one cell being in the tab order", async () => {
    const user = userEvent.setup();
    await open();
    const grid = await screen.findByRole("grid", { name: /models in rows/ });
    const first = within(grid).getByRole("link", { name: /^a, d/ });
    first.focus();
    await user.keyboard("{ArrowDown}");
    expect(document.activeElement).toBe(within(grid).getByRole("link", { name: /^b, d/ }));
    expect(first.getAttribute("tabindex")).toBe("-1");
    await user.keyboard("{ArrowUp}{ArrowRight}");
    expect(document.activeElement).toBe(within(grid).getByRole("link", { name: /^a, e/ }));
  });

  it("acts on nothing: it gives commands to copy", async () => {
    const user = userEvent.setup();
    await open();
    await user.click(await screen.findByRole("button", { name: "Commands" }));
    expect(screen.getByText("hpcbench pause e1")).toBeTruthy();
    expect(screen.queryByText("hpcbench resume e1")).toBeNull();
  });

  it("has its tabs in the address, and opens pages of the report beside itself", async () => {
    await open("report");
    const page = await screen.findByRole("link", { name: "report.html" });
    expect(page.getAttribute("target")).toBe("_blank");
    expect(page.getAttribute("href")).toBe("api/v1/experiments/e1/report/report.html");
    expect(screen.getByRole("link", { name: "report.md" }).getAttribute("download")).toBe("report.md");
  });

  it("shows what differs from a baseline, without colour alone", async () => {
    serve({
      "/experiments/e1": DETAIL, "/experiments": NOTHING,
      "/experiments/e1/configuration": { baseline: "e0", why: "", differences: [{ path: "plan.seed", baseline: 1, experiment: 2 }, { path: "plan.limit", baseline: null, experiment: 9 }] },
    });
    await renderAt("/e/e1?tab=config");
    const row = (await screen.findByText("plan.seed")).closest("tr");
    expect(row?.querySelector("del")?.textContent).toBe("1");
    expect(row?.querySelector("ins")?.textContent).toBe("2");
    expect(screen.getByText("not set")).toBeTruthy();
  });

  it("says so where there is no such experiment", async () => {
    serve({});
    await renderAt("/e/e9");
    expect(await screen.findByText("There is no experiment e9")).toBeTruthy();
  });
});
