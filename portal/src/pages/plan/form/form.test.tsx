import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { renderAt, serve } from "../../../testing";

// CodeMirror measures its text, which jsdom cannot; the editor in a browser is in tests/portal.
vi.mock("../editor/CodeEditor", () => ({ default: ({ text }: { readonly text: string }) => <pre data-testid="text">{text}</pre> }));

const TEXT = "name: night\nmatrix:\n  - ml_task: vqa\n    models: [small]  # more later\n    datasets: [docvqa]\n";
const CHECKED = { problems: [], run_tasks: [], run_tasks_total: 0, estimate: null, estimate_fault: "", commands: [] };
const choice = (kind: string, name: string, more: object = {}) => ({ kind, name, description: "", fault: "", engine: "", gpus: null, gpu_memory_gb: null, parameters_b: null, size_gb: null, samples: null, fields: [], ...more });
const CHOICES = [
  choice("ml_tasks", "vqa", { fields: ["question"] }),
  choice("models", "small", { gpus: 1, gpu_memory_gb: 10, parameters_b: 0.9 }),
  choice("models", "large", { gpus: 8, gpu_memory_gb: 80, parameters_b: 78 }),
  choice("datasets", "docvqa", { samples: 5349, fields: ["question"] }),
  choice("datasets", "pages", { fields: ["text"] }),
  choice("prompts", "short"),
];

function open() {
  const row = { id: "d1", kind: "plans", name: "night", folder: ".", origin: "own", writable: true, updated: 1, counts: true };
  serve({ "/definitions/d1": { row, text: TEXT, etag: "e" }, "/definitions/choices": CHOICES, "/definitions": [row], "/definitions/check": CHECKED, "/schemas/plans": {} });
  return renderAt("/plans/d1");
}

const text = () => screen.getByTestId("text").textContent;

it("changes the text by a choice, keeps its comments, and says what the matrix comes to", async () => {
  const user = userEvent.setup();
  await open();
  await user.click(await screen.findByRole("checkbox", { name: /large/ }));
  expect(text()).toBe(TEXT.replace("[small]", "[small, large]"));
  expect(screen.getByText("2 models × 1 dataset = 2 run tasks; the largest model: 8 GPUs of 80 GB · 78 B")).toBeTruthy();
  await user.click(screen.getByRole("checkbox", { name: /short/ }));
  await user.type(screen.getByRole("spinbutton", { name: "Samples of each run task" }), "20");
  await waitFor(() => expect(text()).toContain("limit: 20"));
  expect(text()).toContain("prompts: [short]");
});

it("shows the figures that decide, and what does not fit", async () => {
  await open();
  const models = await screen.findByRole("group", { name: /Models/ });
  expect(within(models).getByText("1 GPU of 10 GB · 0.9 B")).toBeTruthy();
  expect(screen.getByText("no field question")).toBeTruthy();
  expect(screen.getByText(/5.?349 samples/)).toBeTruthy();
});

it("does not take away the last model: a plan needs one", async () => {
  const user = userEvent.setup();
  await open();
  await user.click(await screen.findByRole("checkbox", { name: /small/ }));
  expect(text()).toBe(TEXT);
});
