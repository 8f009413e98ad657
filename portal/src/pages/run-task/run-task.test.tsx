import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { RunTaskDetail } from "../../api/schema";
import { renderAt, serve } from "../../testing";

const DETAIL: RunTaskDetail = {
  row: {
    experiment: "e1", name: "vqa-a", ml_task: "vqa", model: "a", dataset: "d", prompt: "p", state: "done", reason: null, samples: 100, answered: 100, rate: null,
    counts: { asked: 100, responded: 100, ok: 98, unreadable: 2, failed: 0, skipped: 0, coverage: 0.98 }, speed_valid: false, coverage: 0.98, invalid: 2, scores: [{ metric: "anls", value: 0.81, low: 0.77, high: 0.85, n: 98, documents: 40, higher_is_better: true, unit: "", standing: "" }],
    latency_p50: 0.07, latency_p95: 0.09, tokens_per_second: 58, peak_memory_gb: 10,
  },
  engine: "vllm",
  definitions: { model: { name: "a", key: "env:KEY" } },
  timeline: [
    { what: "queued", worker: "g0.1", node: "", begin: 0, end: 600 },
    { what: "inference", worker: "g0.1", node: "gpu01", begin: 600, end: 1800 },
  ],
  metrics: [{ metric: "anls", value: 0.81, low: 0.77, high: 0.85, n: 98, clusters: 40, method: "CR1", signature: "anls|tau:0.5", higher_is_better: true }],
  groups: [{ by: ["doc_type"], groups: 1, rows: [{ by: ["form"], metric: "anls", value: 0.7, low: 0.6, high: 0.8, n: 40, documents: 8, coverage: 1, invalid: 0 }] }],
  performance: { valid: false, e2e_ms: { n: 98, max: 400, mean: { value: 129, low: 111, high: 147 }, p99: { value: null, needs: 459 } }, notes: ["client-bound"] },
  outcomes: { ok: 98, failed: 2 },
  wrong: 20,
  mistakes: { "digit dropped": 12 },
  unnamed: 6,
  invalid_reasons: [{ reason: "no JSON <script>", count: 2 }],
  failures: [],
  advice: [{ level: "warning", text: "Asked for 64 GiB, used 8.", change: "resources: {memory_gb: 11}" }],
  commands: [{ title: "Status", text: "hpcbench status e1" }],
  taken: [{ experiment: "e0", answers: 30, here: true }, { experiment: "old", answers: 2, here: false }],
  figures: [],
};

const object = (index: number, state: string, answered: number) => ({ index, state, samples: 10, answered, attempt: 1, node: "gpu01", cause: state === "lost" ? "gone" : null, since: null });
const OBJECTS = { items: [object(0, "done", 10), object(1, "lost", 4), object(2, "running", 5)], next: null, total: 3, counted_to: 10_000 };

const ANSWERS = { "/experiments/e1/run-tasks/vqa-a": DETAIL, "/experiments/e1/objects/vqa-a": OBJECTS };

describe("the page of a run task", () => {
  it("names the experiments that gave answers, and leads to those that are here", async () => {
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a");
    const taken = await screen.findByTestId("taken");
    expect(taken.textContent).toBe("32 answers of earlier experiments, which no figure of speed counts: e0 (30), old (2)");
    expect(within(taken).getAllByRole("link").map((one) => one.textContent)).toEqual(["e0"]);
  });

  it("gives every metric with its interval and n, and leads to its worst samples", async () => {
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a");
    const row = (await screen.findByText("anls|tau:0.5")).closest("tr");
    expect(row?.textContent).toContain("0.770 to 0.850");
    expect(row?.textContent).toContain("98 from 40 documents");
    expect(within(row ?? document.body).getByRole("link", { name: /worst first/ }).getAttribute("href")).toContain("wrong=1");
    expect(screen.getByRole("link", { name: "Show wrong samples" }).getAttribute("href")).toContain("/e/e1/t/vqa-a/samples?wrong=1");
  });

  it("leads from outcomes and reasons to their samples; what models wrote is text", async () => {
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a");
    const reason = await screen.findByRole("link", { name: "no JSON <script>" });
    expect(decodeURIComponent(reason.getAttribute("href") ?? "").replaceAll("+", " ")).toContain("reason=no JSON <script>");
    const mistake = screen.getByRole("link", { name: "digit dropped" });
    expect(mistake.getAttribute("href")).toContain("mistake=digit+dropped");
    expect(mistake.closest("li")?.textContent).toContain("1260.0 %");
    expect(screen.getByText("Asked for 64 GiB, used 8.")).toBeTruthy();
    expect(screen.getByText("resources: {memory_gb: 11}")).toBeTruthy();
  });

  it("has the timeline as a table, too", async () => {
    const user = userEvent.setup();
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a");
    const panel = (await screen.findByRole("heading", { name: "Timeline" })).closest("section") ?? document.body;
    expect(within(panel).getByText("Waited for Slurm")).toBeTruthy();
    await user.click(within(panel).getByRole("button", { name: "Table" }));
    expect(within(panel).getByRole("row", { name: /g0\.1 gpu01 Asked the model .* 20 min/ })).toBeTruthy();
  });

  it("tells each shard to those who walk the grid, and keeps it in the address", async () => {
    const user = userEvent.setup();
    serve(ANSWERS);
    const { history } = await renderAt("/e/e1/t/vqa-a?object=0");
    const list = await screen.findByRole("listbox", { name: "Shards" });
    list.focus();
    await user.keyboard("{ArrowRight}");
    expect(within(list).getByRole("option").textContent).toContain("shard 1: worker gone, 4 of 10 samples done (40 %); on gpu01; gone");
    await expect.poll(() => history.location.search).toContain("object=1");
  });

  it("says what casts doubt on its speed, and what a percentile needs", async () => {
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a?tab=charts");
    expect(await screen.findByText(/^Not valid: the client was too slow.*Answers and scores are valid/)).toBeTruthy();
    expect(screen.getByText("needs n ≥ 459")).toBeTruthy();
    expect(screen.getByText("111 ms – 147 ms")).toBeTruthy();
  });

  it("has scores by group, each a way to its samples", async () => {
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a?tab=groups");
    const group = await screen.findByRole("link", { name: "form" });
    expect(decodeURIComponent(group.getAttribute("href") ?? "")).toContain("where=doc_type:form");
  });

  it("gives commands and definitions to copy", async () => {
    serve(ANSWERS);
    await renderAt("/e/e1/t/vqa-a?tab=commands");
    expect(await screen.findByText("hpcbench status e1")).toBeTruthy();
    expect(screen.getByText(/"env:KEY"/)).toBeTruthy();
  });

  it("shows how agents worked in the place of latencies, which they have not", async () => {
    const spread = { n: 9, max: 4, mean: { value: 1.5 }, p50: { value: 1 }, p95: { value: null, needs: 90 } };
    const work = { samples: 9, exits: { answered: 7, limit_calls: 2 }, calls: { crop: 6 }, failed: {}, wasted: 1, prompt_tokens: 3100, turns_each: spread, plans: { steps: 4, done: 2 } };
    serve({ ...ANSWERS, "/experiments/e1/run-tasks/vqa-a": { ...DETAIL, performance: { trajectories: work } } });
    await renderAt("/e/e1/t/vqa-a?tab=charts");
    const shown = await screen.findByTestId("agent-work");
    expect(within(shown).getByRole("row", { name: /Turns 1.50 1 – 4 9/ })).toBeTruthy();
    expect(within(shown).getByRole("region", { name: "How the work ended, samples" }).textContent).toContain("limit_calls2");
    expect(shown.textContent).toContain("3,100");
    expect(screen.queryByText("Latencies and rates")).toBeNull();
  });
});
