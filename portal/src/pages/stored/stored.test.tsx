import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";

import type { StoredExperiment, StoredRunTask, StoredSample } from "../../api/schema";
import { renderAt, serve } from "../../testing";

function task(name: string, value: number): StoredRunTask {
  const score = { metric: "anls", value, low: value - 0.1, high: value + 0.1, n: 10, documents: 5, method: "t", signature: "anls|v1", unit: "", higher_is_better: true };
  return { name, ml_task: "vqa", model: "tiny", dataset: "pages", split: "", prompt: "short", engine: "vllm", status: "done", reason: "", asked: 10, answered: 10, coverage: 1, scores: [score] };
}

const FOUND: StoredExperiment = {
  id: "e2", name: "Счета 2026", description: "", owner: "ada", home: "/home/ada/hpcbench", created: 1_760_000_000, status: "done", reason: "", hpcbench: "0.1.0",
  synced: 1_760_000_100, run_tasks: [task("one", 0.5), task("two", 0.75)],
}; // prettier-ignore

function sample(name: string, answer: string): StoredSample {
  return { sample: name, place: 0, document: "d", outcome: "ok", reference_answers: ["42"], prediction: answer, reason: "", mistake: "", answer, error: "", scores: { anls: 0.25 } };
}

it("an experiment of another home has its scores and samples", async () => {
  const { asked } = serve({
    "/stored/e2": FOUND,
    "/stored/e2/samples": (url: URL) => ({ items: [sample("s1", `answer of ${url.searchParams.get("run_task") ?? ""}`)], next: null }),
  });
  await renderAt("/stored/e2");
  expect(await screen.findByRole("heading", { name: "Счета 2026" })).toBeTruthy();
  expect(await screen.findAllByText("answer of one")).toHaveLength(2);
  expect(screen.getByText("ada")).toBeTruthy();
  await userEvent.click(screen.getByText("two"));
  expect(await screen.findAllByText("answer of two")).toHaveLength(2);
  expect(asked.filter(({ url }) => url.pathname.endsWith("/samples"))).toHaveLength(2);
});

it("a database that is away is reported", async () => {
  serve({ "/stored/e2": () => Response.json({ error: "the database of results gives no answer: refused", remedy: "try again later", code: "busy", id: "" }, { status: 503 }) });
  await renderAt("/stored/e2");
  expect((await screen.findByRole("alert")).textContent).toContain("gives no answer: refused");
});
