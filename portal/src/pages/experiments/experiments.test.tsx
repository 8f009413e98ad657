import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import type { ExperimentRow } from "../../api/schema";
import { renderAt, serve } from "../../testing";

function row(id: string, more: Partial<ExperimentRow> = {}): ExperimentRow {
  return {
    id, plan: "nightly", state: "done", created: 1, updated: 1, owner: "ada", models: ["qwen"], datasets: ["docvqa"], run_tasks: 1,
    tasks_by_state: { done: 1 }, samples: 10, answered: 10, scored: 1, failures: 0, baselines: [], trend: [], scores: [], ...more,
  };
}

const page = (...items: readonly ExperimentRow[]) => ({ items, next: null, total: items.length, counted_to: 10_000 });
const FACETS = [{ field: "state", counts: [["done", 2]] }];

beforeEach(() => {
  window.localStorage.clear();
});

const underWay = (url: URL) => url.searchParams.has("state", "running");

describe("the list of experiments", () => {
  it("shows what runs now above all, and each with its state in words", async () => {
    const running = row("e2", { state: "running", answered: 4, eta: "14:20" });
    serve({ "/experiments": (url: URL) => (underWay(url) ? page(running) : page(row("e1"), running)), "/experiments/facets": FACETS });
    await renderAt("/");
    const strip = await screen.findByRole("region", { name: /Running now/ });
    expect(within(strip).getByText("14:20")).toBeTruthy();
    const grid = await screen.findByRole("grid", { name: "Experiments" });
    expect(within(grid).getByRole("link", { name: "e1" })).toBeTruthy();
    await waitFor(() => expect(document.title).toBe("40 % – Experiments · hpcbench"));
  });

  it("says how to start where there is nothing", async () => {
    serve({ "/experiments": page(), "/experiments/facets": [] });
    await renderAt("/");
    expect(await screen.findByText("hpcbench submit plan.yaml --dry-run")).toBeTruthy();
    expect(screen.queryByRole("grid")).toBeNull();
  });

  it("filters and sorts by what stands in the address", async () => {
    const { asked } = serve({ "/experiments": page(row("e1")), "/experiments/facets": FACETS });
    await renderAt("/?text=qwen&state=done&state=lost&sort=score&order=asc");
    await screen.findByRole("grid");
    const sent = asked.map(({ url }) => url).find((url) => url.pathname.endsWith("/experiments") && !underWay(url));
    expect(sent?.search).toBe("?limit=100&order=asc&sort=score&state=done&state=lost&text=qwen");
    expect(screen.getByLabelText<HTMLInputElement>("Filter by words").value).toBe("qwen");
  });

  it("has a column for each dataset and metric, with interval, change and trend, to sort by and to choose", async () => {
    const columns = ["anls", "cer", "f1", "exact"].map((metric) => ({ dataset: "docvqa", metric, experiments: 2, higher_is_better: metric !== "cer" }));
    const score = { dataset: "docvqa", metric: "anls", value: 0.8125, low: 0.79, high: 0.83, n: 100, documents: 50, higher_is_better: true, unit: "", standing: "", run_tasks: 1, change: 0.0125, trend: [0.7, 0.8] };
    const { asked } = serve({ "/experiments": page(row("e1", { scores: [score] })), "/experiments/facets": FACETS, "/experiments/score-columns": columns });
    const lists = () => asked.map(({ url }) => url.searchParams).filter((sent) => sent.has("column"));
    const { history } = await renderAt("/");
    const head = await screen.findByRole("columnheader", { name: "anls ↑ docvqa" });
    expect(screen.getByRole("columnheader", { name: "cer ↓ docvqa" })).toBeTruthy();
    expect(screen.queryByRole("columnheader", { name: /exact/ })).toBeNull();
    expect(lists()[0]?.getAll("column")).toEqual(["docvqa:anls", "docvqa:cer", "docvqa:f1"]);
    const cell = screen.getByText(/anls 0.813, 95 % interval 0.79/).closest('[role="gridcell"]');
    expect(cell?.textContent).toContain("+0.0125");
    expect(within(cell as HTMLElement).getByRole("img", { name: /Last 2 of nightly/ })).toBeTruthy();
    fireEvent.click(within(head).getByRole("button"));
    await waitFor(() => expect(lists().at(-1)?.get("sort")).toBe("docvqa:anls"));
    expect(lists().at(-1)?.get("order")).toBe("desc");
    fireEvent.click(screen.getByRole("button", { name: "Columns" }));
    fireEvent.click(await screen.findByRole("checkbox", { name: "exact ↑ docvqa" }));
    await waitFor(() => expect(lists().at(-1)?.getAll("column")).toContain("docvqa:exact"));
    expect(history.location.search).toContain("columns=");
  });

  it("puts a change of filter into the address, so that Back takes it back", async () => {
    serve({ "/experiments": page(row("e1")), "/experiments/facets": FACETS });
    const { history } = await renderAt("/?state=done");
    fireEvent.click(await screen.findByTitle("Do not filter by this state"));
    await waitFor(() => expect(history.location.search).toBe(""));
    history.back();
    await screen.findByTitle("Do not filter by this state");
  });

  it("compares those that are ticked, the first one being the baseline", async () => {
    serve({ "/experiments": (url: URL) => (underWay(url) ? page() : page(row("e1"), row("e2"))), "/experiments/facets": FACETS });
    await renderAt("/");
    fireEvent.click(await screen.findByLabelText("Select e2"));
    await screen.findByText("Pick one more to compare");
    fireEvent.click(screen.getByLabelText("Select e1"));
    const link = await screen.findByRole("link", { name: /Compare 2/ });
    expect(link.getAttribute("href")).toContain("runs=e2&runs=e1");
  });

  it("keeps a view under a name, and shows it again", async () => {
    serve({ "/experiments": page(row("e1")), "/experiments/facets": FACETS });
    const { history } = await renderAt("/?state=done&sort=score");
    fireEvent.click(await screen.findByRole("button", { name: "Views" }));
    fireEvent.change(screen.getByLabelText("Name of the view"), { target: { value: "Best" } });
    fireEvent.click(screen.getByRole("button", { name: "Save" }));
    fireEvent.click(screen.getByRole("button", { name: "Clear" }));
    await waitFor(() => expect(history.location.search).toBe("?sort=score"));
    fireEvent.click(screen.getByRole("button", { name: "Best" }));
    await waitFor(() => expect(history.location.search).toBe("?state=done&sort=score"));
  });

  it("says what went wrong", async () => {
    serve({ "/experiments": () => Response.json({ error: "the index is being built", remedy: "wait", code: "bad", id: "f1" }, { status: 500 }), "/experiments/facets": [] });
    await renderAt("/");
    expect((await screen.findByRole("alert")).textContent).toContain("the index is being built");
  });
});

describe("the palette", () => {
  it("leads to what is called so", async () => {
    serve({ "/experiments": page(row("e1")), "/experiments/facets": FACETS, "/search": [{ kind: "run_task", name: "read", experiment: "e1", detail: "e1", count: 1 }] });
    const { history } = await renderAt("/");
    await screen.findByRole("grid");
    fireEvent.keyDown(document.body, { key: "k", ctrlKey: true });
    const field = screen.getByRole("combobox", { name: "Jump to" });
    fireEvent.change(field, { target: { value: "read" } });
    await screen.findByRole("option", { name: /read/ });
    fireEvent.keyDown(field, { key: "Enter" });
    await waitFor(() => expect(history.location.pathname).toBe("/e/e1/t/read"));
  });
});

describe("a session that has ended", () => {
  it("is signed in anew at the same place", async () => {
    const refused = () => Response.json({ error: "no", remedy: "", code: "not_signed_in", id: "" }, { status: 401 });
    let over = true;
    serve({ "/experiments": page(row("e1")), "/experiments/facets": FACETS, "GET /session": refused, "POST /session/refresh": refused, "POST /session": () => ((over = false), { user: "ada", host: "h", version: "1", home: "/", mode: "dev", may_edit: false, may_submit: false, expires: Date.now() / 1000 + 900, tunnel: "", news: 0 }) });
    const { history } = await renderAt("/?sort=score");
    const field = await screen.findByLabelText("The link, or its code");
    fireEvent.change(field, { target: { value: "http://localhost:1/#t=abc" } });
    fireEvent.click(screen.getByRole("button", { name: "Sign in" }));
    await screen.findByRole("grid");
    expect([over, history.location.search]).toEqual([false, "?sort=score"]);
  });
});
