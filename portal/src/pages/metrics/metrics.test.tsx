import { screen } from "@testing-library/react";
import { expect, it } from "vitest";

import type { MetricValue, MetricValues } from "../../api/schema";
import { renderAt, serve } from "../../testing";

const NOW = Date.now() / 1000;

function value(more: Partial<MetricValue> = {}): MetricValue {
  return {
    experiment: "e1", run_task: "vqa", created: NOW - 60, plan: "nightly", owner: "", model: "tiny", dataset: "pages", value: 0.9, low: 0.8,
    high: 0.95, n: 10, higher_is_better: true, unit: "", signature: "anls|v1", here: true, only_files: false, ...more,
  }; // prettier-ignore
}

function answers(more: Partial<MetricValues>) {
  return { "/values": { items: [], next: null, database: true, fault: null, ...more }, "/values/metrics": { names: ["anls"] } };
}

it("a list has values of this home and of others; each leads to its page", async () => {
  serve(answers({ items: [value(), value({ experiment: "e2", owner: "ada", here: false })] }));
  await renderAt("/metrics");
  expect((await screen.findByRole("link", { name: "e1" })).getAttribute("href")).toContain("/e/e1/t/vqa");
  expect(screen.getByRole("link", { name: "e2" }).getAttribute("href")).toContain("/stored/e2?task=vqa");
  expect(screen.getByText("ada")).toBeTruthy();
});

it("a database that gives no answer is told, and so is what it lacks", async () => {
  serve(answers({ items: [value()], fault: "database postgresql://db/results: connection refused" }));
  await renderAt("/metrics");
  expect((await screen.findByText(/database of results gives no answer/)).textContent).toContain("connection refused. This list has the experiments of this home");
});

it("what is only in files says how it is sent", async () => {
  serve(answers({ items: [value({ only_files: true })] }));
  await renderAt("/metrics");
  expect(await screen.findByText("you, only in files")).toBeTruthy();
  expect(screen.getByText("hpcbench database sync --all")).toBeTruthy();
});
