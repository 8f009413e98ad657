import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Regression, TrendRow, Trends } from "../../api/schema";
import { renderAt, serve } from "../../testing";

const DAY = 86_400;
const NOW = Date.now() / 1000;

function change(more: Partial<Regression> = {}): Regression {
  return { id: "c1", before: 0.9, after: 0.8, worse: true, first: "e3", last_good: "e2", time: NOW - DAY, acknowledged: null, ...more };
}

function trends(...changes: Regression[]): Trends {
  const points = [0.9, 0.9, 0.9, 0.8].map((value, at) => ({
    experiment: `e${at}`, time: NOW - (4 - at) * DAY, value, low: value - 0.02, high: value + 0.02,
  })); // prettier-ignore
  const row: TrendRow = {
    id: "t1", plan: "nightly", run_task: "invoices", name: "anls", kind: "quality", model: "org/tiny", signature: "",
    higher_is_better: true, unit: "", points, changes,
  }; // prettier-ignore
  return { names: ["anls"], plans: ["nightly"], rows: [row], pending: 0, left_out: 0 };
}

it("the heat map has its values as text, with their signs", async () => {
  serve({ "/regressions": trends(change()) });
  await renderAt("/regressions");
  const [, row] = within(await screen.findByTestId("heat")).getAllByRole("row");
  expect(row?.textContent).toContain("−10");
  expect(row?.textContent).toContain("level changed for the worse");
  expect(screen.getByText("1 of 1 trend is at a worse level.")).toBeTruthy();
});

it("a row tells the last good and the first bad run, and leads to their comparison", async () => {
  serve({ "/regressions": trends(change()) });
  const shown = await renderAt("/regressions");
  fireEvent.click(within(await screen.findByTestId("heat")).getByRole("button"));
  const details = await screen.findByTestId("details");
  expect(within(details).getByText("last good").nextSibling?.textContent).toBe("e2");
  expect(within(details).getByText("first bad").nextSibling?.textContent).toBe("e3");
  expect(within(details).getByRole("link", { name: "Compare the two" }).getAttribute("href")).toContain("runs=e2&runs=e3");
  expect(shown.history.location.search).toBe("?row=t1");
});

it("an acknowledgement needs a reason", async () => {
  const path = "PUT /regressions/c1/acknowledgement";
  const { asked } = serve({ "/regressions": trends(change()), [path]: change() });
  await renderAt("/regressions?row=t1");
  fireEvent.click(await screen.findByRole("button", { name: "Acknowledge …" }));
  const save = screen.getByRole("button", { name: "Acknowledge", hidden: true });
  fireEvent.click(save);
  expect(await screen.findByText("Enter a reason.")).toBeTruthy();
  fireEvent.change(screen.getByLabelText("Why is this no alarm?"), { target: { value: " known " } });
  fireEvent.click(save);
  await waitFor(() => expect(asked.find(({ init }) => init.method === "PUT")?.init.body).toBe('{"reason":"known","until":null}'));
});

it("what is acknowledged is shown as such, and can be left out", async () => {
  serve({ "/regressions": trends(change({ acknowledged: { reason: "new tokenizer", by: "ada", time: NOW, until: null } })) });
  await renderAt("/regressions?row=t1");
  expect(await screen.findByText("new tokenizer")).toBeTruthy();
  expect(screen.getByText("none of 1 trend is at a worse level; 1 more acknowledged.")).toBeTruthy();
  fireEvent.click(screen.getByRole("checkbox", { name: "Acknowledged" }));
  expect(await screen.findByText("No trend passes the filter")).toBeTruthy();
});
