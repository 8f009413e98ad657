import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";

import type { SampleDetail, SamplePage, SampleRow, SampleTurns } from "../../api/schema";
import { renderAt, serve } from "../../testing";

const BASE = "/experiments/e1/run-tasks/vqa";
const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>';

function row(place: number): SampleRow {
  return {
    place, sample: `s${place}`, document: "d", outcome: "ok", reason: null, scores: { anls: place % 2 },
    answer: `answer ${place}`, latency: 0.2, output_tokens: 3, flagged: false,
  }; // prettier-ignore
}

function page(url: URL): SamplePage {
  const wrong = url.searchParams.get("wrong") === "true";
  const places = [0, 1, 2, 3].filter((place) => !wrong || place % 2 === 0);
  return { items: places.map(row), next: null, total: places.length, of: 4, first: 0, live: false, version: "1", metrics: ["anls"] };
}

function detail(place: number): SampleDetail {
  return {
    row: row(place), images: [], missing_images: "the sample has no image", boxes: [], system: null, prompt: "What is the total?",
    fields: {}, metadata: {}, references: ["120.00"], answer: HOSTILE, reasoning: null, prediction: HOSTILE, error: null,
    diff: [], not_compared: [0, 0], accounts: [], times: {}, usage: {}, raw: {}, note: "", rank: place,
    previous: place > 0 ? place - 1 : null, following: place < 3 ? place + 1 : null, agent: false,
  }; // prettier-ignore
}

function served(more: Partial<SampleDetail> = {}) {
  const details = Object.fromEntries([0, 1, 2, 3].map((place) => [`${BASE}/samples/${place}`, { ...detail(place), ...more }]));
  return serve({
    [`${BASE}/samples`]: page,
    [`${BASE}/samples/facets`]: [{ field: "outcome", counts: [["ok", 3], ["failed", 1]] }], // prettier-ignore
    [`PUT ${BASE}/samples/1/flag`]: { flagged: true, note: "" },
    ...details,
  });
}

const place = (shown: { history: { location: { search: string } } }) => shown.history.location.search;

it("J and K go from sample to sample, and the address says where", async () => {
  served();
  const shown = await renderAt("/e/e1/t/vqa/samples");
  await waitFor(() => expect(screen.getByTestId("sample").textContent).toBe("s0"));
  fireEvent.keyDown(document.body, { key: "j" });
  await waitFor(() => expect(screen.getByTestId("sample").textContent).toBe("s1"));
  expect(place(shown)).toBe("?at=1");
  expect(within(screen.getByTestId("samples")).getByRole("option", { selected: true }).textContent).toContain("s1");
  fireEvent.keyDown(document.body, { key: "k" });
  await waitFor(() => expect(screen.getByTestId("sample").textContent).toBe("s0"));
});

it("what a model says stays text", async () => {
  served();
  const shown = await renderAt("/e/e1/t/vqa/samples?at=2");
  await waitFor(() => expect(screen.getAllByText(HOSTILE).length).toBeGreaterThan(0));
  expect(shown.container.querySelector("script, img[src=x]")).toBeNull();
});

it("a diff of long texts says what it leaves out, and leads to all of it", async () => {
  served({ diff: [{ kind: "same", text: "a" }], not_compared: [1, 30_000] });
  await renderAt("/e/e1/t/vqa/samples?at=2");
  await screen.findByText(/30.001 more characters at the end are not compared: 1 of the reference, 30.000 of the answer/);
  fireEvent.click(screen.getByRole("button", { name: "Whole answer" }));
  await waitFor(() => expect(screen.queryByTestId("diff")).toBeNull());
});

it("a link opens exactly its sample, among those that its filter leaves", async () => {
  const { asked } = served();
  await renderAt("/e/e1/t/vqa/samples?wrong=1&at=2");
  await waitFor(() => expect(screen.getByTestId("sample").textContent).toBe("s2"));
  expect(screen.getByText("2 of 4")).toBeTruthy();
  expect(asked.some(({ url }) => url.pathname.endsWith("/samples/2") && url.searchParams.get("wrong") === "true")).toBe(true);
});

it("a facet is chosen by its digit, and another filter begins at its first sample", async () => {
  served();
  const shown = await renderAt("/e/e1/t/vqa/samples?at=3");
  await screen.findByRole("button", { name: /failed/ });
  fireEvent.keyDown(document.body, { key: "2" });
  await waitFor(() => expect(place(shown)).toBe("?outcome=failed"));
});

it("a flag shows at once and is sent", async () => {
  const { asked } = served();
  await renderAt("/e/e1/t/vqa/samples?at=1");
  await waitFor(() => expect(screen.getByTestId("sample").textContent).toBe("s1"));
  act(() => void fireEvent.keyDown(document.body, { key: "f" }));
  await screen.findByRole("button", { name: "Remove the flag" });
  expect(asked.some(({ init }) => init.method === "PUT")).toBe(true);
});

const TURNS: SampleTurns = {
  exit: "limit_calls", why: "3 calls", wasted: 1, left_out: 0, think_seconds: 1, tool_seconds: 0.5, sync_seconds: 0.01,
  plan: [{ text: "look", status: "done" }, { text: "add", status: "in_progress" }],
  turns: [
    {
      number: 1, agent: "reader", text: HOSTILE, reasoning: null, outcome: "ok", begin: 0, seconds: 1, ttft: 0.1, prompt_tokens: 200, completion_tokens: 10,
      calls: [
        { tool: "crop", arguments: '{"left": 1}', kind: "ok", text: "cut", seconds: 0.25, images: ["experiments/e1/run-tasks/vqa/samples/1/made/0"], numbers: [2] },
        { tool: "zoom", arguments: "{", kind: "arguments", text: "no JSON", seconds: 0, images: [], numbers: [] },
        { tool: "crop", arguments: "{}", kind: null, text: "", seconds: null, images: [], numbers: [] },
      ],
    },
  ],
}; // prettier-ignore

it("shows what an agent did: plan, turns, calls, images, and how it ended", async () => {
  serve({ [`${BASE}/samples`]: page, [`${BASE}/samples/facets`]: [], [`${BASE}/samples/1`]: { ...detail(1), agent: true }, [`${BASE}/samples/1/turns`]: TURNS });
  const shown = await renderAt("/e/e1/t/vqa/samples?at=1");
  const turns = await screen.findByTestId("turns");
  expect(screen.getByRole("heading", { name: "Plan, 1 of 2 steps done" })).toBeTruthy();
  expect(within(screen.getByTestId("plan")).getByText("in progress")).toBeTruthy();
  expect(within(turns).getByText("1, reader")).toBeTruthy();
  expect(turns.textContent).toContain("arguments");
  expect(turns.textContent).toContain("not made");
  expect(screen.getByTestId("exit").textContent).toBe("limit_calls3 calls");
  expect(screen.getByTestId("turns-facts").textContent).toContain("1 turn · 3 calls · 1 wasted");
  const image = within(turns).getByRole("button", { name: "Image 2, made by crop: larger" });
  expect(image.querySelector("img")?.getAttribute("src")).toContain("/made/0?size=thumb");
  fireEvent.click(image);
  expect(image.querySelector("img")?.getAttribute("src")).toContain("/made/0?size=full");
  expect(image.getAttribute("aria-expanded")).toBe("true");
  expect(shown.container.querySelector("script, img[src=x]")).toBeNull();
});
