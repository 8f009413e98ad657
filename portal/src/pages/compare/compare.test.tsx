import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Candidate, Comparison, MetricCompared } from "../../api/schema";
import { renderAt, serve } from "../../testing";

function metric(name: string, more: Partial<MetricCompared> = {}): MetricCompared {
  return {
    baseline: "vqa", candidate: "vqa", metric: name, signature: name, higher_is_better: true, values: [0.9, 0.8],
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
