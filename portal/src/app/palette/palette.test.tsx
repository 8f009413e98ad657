import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { SampleRow } from "../../api/schema";
import { renderAt, serve } from "../../testing";
import { nearest } from "./samples";

function row(place: number, sample: string): SampleRow {
  return { place, sample, document: "d", outcome: "ok", scores: {}, answer: null, flagged: false };
}

const NAMED = (task: string) => `/experiments/e1/run-tasks/${task}/samples/named`;

/** Opens the palette and types into it. */
function look(text: string): HTMLElement {
  fireEvent.keyDown(document.body, { key: "k", ctrlKey: true });
  const field = screen.getByRole("combobox", { name: "Jump to" });
  fireEvent.change(field, { target: { value: text } });
  return field;
}

const names = () => screen.getAllByRole("option").map((one) => one.textContent);

describe("samples in the palette", () => {
  it("are found by their id on the page of a run task, and Enter goes there", async () => {
    const { asked } = serve({ "/search": [], [NAMED("read")]: [row(41, "inv-7"), row(3, "inv-70")] });
    const { history } = await renderAt("/e/e1/t/read");
    const field = look("inv-7");
    await screen.findByRole("option", { name: /inv-70/ });
    expect(names().slice(0, 3)).toEqual(["inv-7e1 · read, answered", "inv-70e1 · read, answered", "Samples with “inv-7”e1 · read"]);
    expect(asked.find(({ url }) => url.pathname.endsWith("/named"))?.url.search).toBe("?limit=5&text=inv-7");
    fireEvent.keyDown(field, { key: "Enter" });
    await waitFor(() => expect(history.location.pathname).toBe("/e/e1/t/read/samples"));
    expect(history.location.search).toBe("?at=41");
  });

  it("are looked for among the run tasks of an experiment that has few", async () => {
    const tasks = { items: [{ name: "read" }, { name: "ask" }], next: null, total: 2, counted_to: 2 };
    serve({ "/search": [], "/experiments/e1/run-tasks": tasks, [NAMED("read")]: [row(9, "7b")], [NAMED("ask")]: [row(2, "7")] });
    const { history } = await renderAt("/e/e1");
    look("7");
    fireEvent.click(await screen.findByRole("option", { name: /ask/ }));
    await waitFor(() => expect(history.location.href).toBe("/e/e1/t/ask/samples?at=2"));
  });

  it("are not looked for where an experiment has many run tasks, nor elsewhere", async () => {
    const tasks = { items: [{ name: "read" }], next: "more", total: 9, counted_to: 9 };
    const { asked } = serve({ "/search": [], "/experiments/e1/run-tasks": tasks });
    const { history } = await renderAt("/e/e1");
    const field = look("Settings");
    await waitFor(() => expect(asked.some(({ url }) => url.searchParams.get("limit") === "4")).toBe(true));
    fireEvent.click(await screen.findByRole("option", { name: "Settings" }));
    await waitFor(() => expect(history.location.pathname).toBe("/settings"));
    expect(field.isConnected).toBe(false);
    look("7");
    await waitFor(() => expect(asked.some(({ url }) => url.searchParams.get("text") === "7")).toBe(true));
    expect(asked.some(({ url }) => url.pathname.endsWith("/named"))).toBe(false);
  });

  it("are not the only ones: each run task of one name says its experiment", async () => {
    const hit = (experiment: string) => ({ kind: "run_task", name: "vqa-hard", experiment, detail: "m on d", count: 1 });
    serve({ "/search": [hit("e2"), hit("e1")] });
    const { history } = await renderAt("/settings");
    look("vqa-hard");
    await screen.findByRole("option", { name: /e1/ });
    expect(names().slice(0, 2)).toEqual(["vqa-harde2 · m on d", "vqa-harde1 · m on d"]);
    fireEvent.click(screen.getByRole("option", { name: /e1/ }));
    await waitFor(() => expect(history.location.pathname).toBe("/e/e1/t/vqa-hard"));
  });

  it("that are called just so come first, whatever run task they are of", () => {
    const all = [["a", row(1, "x7")], ["a", row(2, "x77")], ["b", row(3, "X7")], ["b", row(4, "7x")], ["c", row(5, "x7")], ["c", row(6, "x78")]] as const;
    expect(nearest("x7", all).map(([task, one]) => `${task} ${one.place}`)).toEqual(["a 1", "b 3", "c 5", "a 2", "b 4"]);
  });
});
