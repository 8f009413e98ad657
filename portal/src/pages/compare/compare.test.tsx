import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Candidate, Comparison, FlipRow, MetricCompared, SampleDetail } from "../../api/schema";
import { renderAt, serve } from "../../testing";

function metric(name: string, more: Partial<MetricCompared> = {}): MetricCompared {
  return {
    baseline: "vqa", candidate: "vqa", metric: name, signature: name, higher_is_better: true, unit: "", values: [0.9, 0.8],
    difference: -0.1, low: -0.15, high: -0.05, p: 0.01, verdict: "worse", n: 100, documents: 50, won: 2, lost: 12,
    tied: 86, both_right: 80, both_partly: 0, both_wrong: 6, only: [0, 0], detectable: null, if_worst: null, differs: [], ...more,
  }; // prettier-ignore
}

function comparison(...metrics: MetricCompared[]): Comparison {
  const side = (run: string) => ({ run, experiment: run, run_task: null, plan: "p", models: ["org/tiny"], created: 1 });
  const candidate: Candidate = {
    side: side("b"), metrics, careful: ["another prompt"], speed: [], speed_careful: [], speed_notes: [], differences: [],
    refused: [{ baseline: "ocr", candidate: "ocr", metric: null, why: "other samples", remedy: "`--common`" }],
  }; // prettier-ignore
  return { baseline: side("a"), candidates: [candidate] };
}

const flips = { baseline: "vqa", candidate: "vqa", metric: "anls", items: [], next: null, total: 0, counts: { lost: 12, won: 2 } };

it("a verdict stands there with its interval and n, and not without", async () => {
  serve({ "/compare": comparison(metric("anls"), metric("exact", { low: null, high: null })), "/compare/flips": flips });
  await renderAt("/compare?runs=a&runs=b");
  const table = await screen.findByTestId("scores");
  const [, first, second] = within(table).getAllByRole("row");
  expect(first?.textContent).toContain("worse");
  expect(first?.textContent).toContain("[−0.150, −0.050]");
  expect(first?.textContent).toContain("100");
  expect(second?.textContent).not.toContain("worse");
  expect(second?.textContent).toContain("no verdict: no interval");
});

it("what is refused or to be careful about is told plainly", async () => {
  serve({ "/compare": comparison(metric("anls")), "/compare/flips": flips });
  await renderAt("/compare?runs=a&runs=b");
  expect(await screen.findByText(/other samples/)).toBeTruthy();
  expect(screen.getByText("another prompt")).toBeTruthy();
  expect(screen.getByRole("checkbox", { name: "Compare the common samples" })).toBeTruthy();
});

it("a part of the flip bar lists its samples, and the address says so", async () => {
  const { asked } = serve({ "/compare": comparison(metric("anls")), "/compare/flips": flips });
  const shown = await renderAt("/compare?runs=a&runs=b");
  fireEvent.click(within(await screen.findByTestId("scores")).getByRole("button", { name: /won 2/ }));
  await waitFor(() => expect(shown.history.location.search).toContain("change=won"));
  await waitFor(() => expect(asked.some(({ url }) => url.searchParams.get("change") === "won")).toBe(true));
});

it("the samples that are listed can be taken away as a file", async () => {
  const row = { sample: "s1", document: "d", change: "won", scores: [0, 1], answers: ["a", "b"], notes: ["", ""], references: ["b"], places: [4, 4] };
  serve({ "/compare": comparison(metric("anls")), "/compare/flips": { ...flips, items: [row], total: 1 } });
  await renderAt("/compare?runs=a&runs=b&change=won&common=true");
  await screen.findByText("s1");
  fireEvent.click(screen.getByRole("button", { name: "Export won" }));
  const asked = new URL(screen.getByRole<HTMLAnchorElement>("link", { name: "CSV" }).href);
  expect(asked.pathname).toBe("/api/v1/compare/export");
  expect(asked.searchParams.getAll("runs")).toEqual(["a", "b"]);
  expect(Object.fromEntries(asked.searchParams)).toEqual({
    what: "flips", runs: "b", run_task: "vqa", other: "vqa", metric: "anls", change: "won", common: "true", format: "csv",
  }); // prettier-ignore
});

it("no file is offered of no samples", async () => {
  serve({ "/compare": comparison(metric("anls")), "/compare/flips": flips });
  await renderAt("/compare?runs=a&runs=b");
  await screen.findByText("No sample is lost");
  expect(screen.queryByRole("button", { name: "Export lost" })).toBeNull();
});

it("rows without a difference are left out until they are asked for", async () => {
  serve({ "/compare": comparison(metric("anls"), metric("same", { won: 0, lost: 0 })), "/compare/flips": flips });
  await renderAt("/compare?runs=a&runs=b");
  expect((await screen.findByTestId("scores")).textContent).not.toContain("same");
  fireEvent.click(screen.getByRole("checkbox", { name: "Only differences" }));
  await waitFor(() => expect(screen.getByTestId("scores").textContent).toContain("same"));
});

it("another baseline changes the order of the runs", async () => {
  serve({ "/compare": comparison(metric("anls")), "/compare/flips": flips });
  const shown = await renderAt("/compare?runs=a&runs=b");
  fireEvent.click(await screen.findByRole("button", { name: "Make b the baseline" }));
  await waitFor(() => expect(shown.history.location.search).toContain("runs=b&runs=a"));
});

it("says how far a long comparison is, and shows it when it is there", async () => {
  let asked = 0;
  const busy = { error: "the portal is still computing this", remedy: "ask again", code: "busy", id: "1" };
  serve({
    "/compare": () => (++asked < 3 ? Response.json({ ...busy, progress: 0.37 }, { status: 202 }) : comparison(metric("anls"))),
    "/compare/flips": flips,
  });
  await renderAt("/compare?runs=a&runs=b");
  expect((await screen.findByRole("progressbar", { name: "Compared" })).getAttribute("aria-valuetext")).toContain("37");
  expect(await screen.findByTestId("scores", {}, { timeout: 5000 })).toBeTruthy();
  expect(screen.queryByRole("progressbar", { name: "Compared" })).toBeNull();
});

function flip(place: number): FlipRow {
  return {
    sample: `s${place}`, document: "d", change: "lost", scores: [1, 0.25], answers: ["42 EUR", "24 EUR"], notes: ["", ""],
    references: ["42 EUR"], places: [place, place],
  }; // prettier-ignore
}

/** The candidate's answer is longer than a list shows. */
const LONG = `${"word ".repeat(100)}end`;

function whole(place: number, why: string): SampleDetail {
  const answer = why.endsWith("a") ? "42 EUR" : `24 EUR ${LONG}`;
  return {
    row: { place, sample: `s${place}`, document: "d", outcome: "ok", reason: null, scores: {}, answer: "", latency: 1, output_tokens: 1, flagged: false },
    images: [], missing_images: "the sample has no image", boxes: [], system: null, prompt: "Read the page. What is the total?",
    fields: { question: "What is the total?" }, metadata: {}, references: ["42 EUR"], answer, reasoning: null, prediction: answer, error: null,
    diff: why.endsWith("a") ? [{ kind: "same", text: answer }] : [{ kind: "lost", text: "42" }, { kind: "added", text: "24" }, { kind: "same", text: "EUR" }, { kind: "added", text: LONG }],
    not_compared: [0, 0], times: {}, usage: {}, raw: {}, note: "", rank: place, previous: null, following: null, agent: false,
    accounts: [{ metric: "anls", signature: "anls", value: 0.25, higher_is_better: true, why, fields: [] }],
  }; // prettier-ignore
}

function servedFlips() {
  const details = [0, 1].flatMap((place) => ["a", "b"].map((run) => [`/experiments/${run}/run-tasks/vqa/samples/${place}`, whole(place, `two edits in ${run}`)]));
  return serve({
    "/compare": comparison(metric("anls")),
    "/compare/flips": { ...flips, items: [flip(0), flip(1)], total: 2 },
    ...(Object.fromEntries(details) as Record<string, SampleDetail>),
  });
}

it("F opens the first sample, J goes on, Escape leads back, and the address says where", async () => {
  servedFlips();
  const shown = await renderAt("/compare?runs=a&runs=b");
  await screen.findByText("s0");
  fireEvent.keyDown(document.body, { key: "f" });
  expect(within(await screen.findByTestId("flip")).getByRole("heading", { name: "s0" })).toBeTruthy();
  fireEvent.keyDown(document.body, { key: "j" });
  await screen.findByRole("heading", { name: "s1" });
  expect(shown.history.location.search).toContain("flip=1");
  fireEvent.keyDown(document.body, { key: "Escape" });
  await waitFor(() => expect(screen.queryByTestId("flip")).toBeNull());
});

it("a link opens a sample with its question, both answers, the change of its score and why", async () => {
  servedFlips();
  await renderAt("/compare?runs=a&runs=b&task=vqa&other=vqa&by=anls&flip=1");
  const open = await screen.findByTestId("flip");
  await within(open).findByText("two edits in b");
  expect(within(open).getByText("What is the total?")).toBeTruthy();
  expect(within(open).getByText("two edits in a")).toBeTruthy();
  expect(within(open).getByText("1.000 → 0.250 (−0.750)")).toBeTruthy();
  expect(within(open).getByText("2 of 2")).toBeTruthy();
  expect(open.querySelector("ins")?.textContent).toContain("24");
  expect(within(open).getByRole("region", { name: "Candidate" }).textContent).toContain(LONG);
});

it("D compares the answers with each other", async () => {
  servedFlips();
  await renderAt("/compare?runs=a&runs=b&task=vqa&other=vqa&by=anls&flip=0");
  const open = await screen.findByTestId("flip");
  await within(open).findByRole("region", { name: "Candidate" });
  fireEvent.keyDown(document.body, { key: "d" });
  await waitFor(() => expect(within(open).getByRole("region", { name: "Candidate" }).querySelector("del")?.textContent).toContain("only in the baseline's answer"));
  expect(within(open).getByRole("region", { name: "Baseline" }).querySelector("del, ins")).toBeNull();
});

it("mistakes and groups are counted and filter the samples, and the address says so", async () => {
  const facets = [{ field: "mistake", counts: [["digit dropped", 1]] }, { field: "lang", counts: [["de", 1], ["en", 2]] }]; // prettier-ignore
  const { asked } = serve({ "/compare": comparison(metric("anls")), "/compare/flips": { ...flips, items: [flip(0)], total: 1, facets } });
  const last = () => asked.filter(({ url }) => url.pathname.endsWith("/flips")).at(-1)?.url.searchParams;
  const shown = await renderAt("/compare?runs=a&runs=b");
  fireEvent.click(await screen.findByRole("button", { name: /digit dropped/ }));
  await waitFor(() => expect(last()?.get("mistake")).toBe("digit dropped"));
  fireEvent.click(await screen.findByRole("button", { name: /de 1/ }));
  await waitFor(() => expect(last()?.getAll("where")).toEqual(["lang:de"]));
  expect(shown.history.location.search).toContain("mistake=");
  fireEvent.click(screen.getByRole("button", { name: /digit dropped/, pressed: true }));
  await waitFor(() => expect(last()?.get("mistake") ?? "").toBe(""));
  expect(last()?.getAll("where")).toEqual(["lang:de"]);
});
