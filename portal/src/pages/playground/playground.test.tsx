import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { renderAt, serve, SESSION } from "../../testing";
import { follow, grown, NOTHING } from "./answer";
import { planText, promptText } from "./definitions";

const SERVED = [{ id: "s1", model: "tiny-vlm", engine: "huggingface", host: "login1", started: 1, reachable: true, state: "ready", is_job: false, why: "", log: [], ends: null }];
const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
const STREAM = event({ choices: [{ delta: { content: "12" } }] }) + event({ choices: [{ delta: { content: ",50" }, finish_reason: "stop" }] }) + event({ choices: [], usage: { prompt_tokens: 90, completion_tokens: 4 } }) + "data: [DONE]\n\n";

/** The same bytes, cut anywhere. */
function cut(text: string, size: number): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  return new ReadableStream({
    start(stream) {
      for (let at = 0; at < bytes.length; at += size) stream.enqueue(bytes.slice(at, at + size));
      stream.close();
    },
  });
}

describe("an answer that streams", () => {
  it("is the same wherever its bytes are cut", async () => {
    for (const size of [1, 7, 1000]) {
      const { text, promptTokens, tokens, reason } = await follow(cut(STREAM, size), 0, () => undefined);
      expect({ text, promptTokens, tokens, reason }).toEqual({ text: "12,50", promptTokens: 90, tokens: 4, reason: "stop" });
    }
  });

  it("has the thoughts of engines that say `reasoning`, and of those that say `reasoning_content`", () => {
    for (const name of ["reasoning", "reasoning_content"]) {
      const { reasoning, first } = grown(NOTHING, JSON.stringify({ choices: [{ delta: { [name]: "hm" } }] }), 7);
      expect({ reasoning, first }).toEqual({ reasoning: "hm", first: 7 });
    }
  });

  it("says what broke, and bears what is no JSON", () => {
    expect(grown(NOTHING, '{"error": {"message": "the engine died"}}', 5).error).toBe("the engine died");
    expect(grown(NOTHING, "{", 5)).toBe(NOTHING);
  });
});

it("makes a prompt and a plan of what was tried", () => {
  const tried = { model: "org/m: x", system: "", prompt: 'Read "it":\n- all', maxTokens: 64, temperature: 0 };
  expect(promptText("p", tried)).toContain("user: |-\n  Read \"it\":\n  - all\n");
  expect(planText("p", tried)).toContain('model: "org/m: x"');
});

describe("the page", () => {
  it("names the command where no model is served", async () => {
    serve({ "/session": { ...SESSION, may_submit: true }, "/playground/served": [] });
    await renderAt("/playground");
    expect(await screen.findByText("hpcbench serve tiny-vlm")).toBeTruthy();
  });

  it("says why a job waits and why one has failed, and asks only models that are ready", async () => {
    const job = { id: "j1", model: "big", engine: "vllm", host: "", started: 1, reachable: false, is_job: true, log: [], ends: null };
    const rows = [...SERVED, { ...job, state: "waiting", why: "waits for 2 × A100; 14 jobs ahead" }, { ...job, id: "j2", state: "failed", why: "out of memory", log: ["loading", "CUDA out of memory"] }];
    serve({ "/session": { ...SESSION, may_submit: true }, "/playground/served": rows });
    await renderAt("/playground");
    expect(await screen.findByText("waits for 2 × A100; 14 jobs ahead")).toBeTruthy();
    expect(screen.getByText("out of memory")).toBeTruthy();
    expect(screen.getByText("CUDA out of memory")).toBeTruthy();
    expect(screen.getByRole("button", { name: "Remove" })).toBeTruthy();
    const options = screen.getByRole("combobox", { name: "Served model" }).querySelectorAll("option");
    expect([...options].map(({ textContent }) => textContent)).toEqual(["tiny-vlm on login1"]);
  });

  it("starts a model only after a confirmation that names the command", async () => {
    const choice = { kind: "models", name: "org/M 1", description: "", fault: "", engine: "vllm", gpus: 2, gpu_memory_gb: 40, parameters_b: 7, size_gb: 16, samples: null, fields: [] };
    const begun = { submission: "abc", verb: "serve", definition: null, name: "org/M 1", started: 1, id: null, log: ["a process of this host"], state: "done" };
    const { asked } = serve({
      "/session": { ...SESSION, may_submit: true },
      "/playground/served": [],
      "POST /playground/served": begun,
      "/definitions/choices": [choice],
      "/submissions/abc": begun,
    });
    await renderAt("/playground");
    const user = userEvent.setup();
    await user.click(await screen.findByRole("button", { name: "Start a model" }));
    expect(await screen.findByText("hpcbench serve 'org/M 1' --job --time-limit 01:00:00")).toBeTruthy();
    expect(screen.getByText(/2 GPUs · 40 GB of GPU memory each · 7 B parameters · 16 GB of files/)).toBeTruthy();
    await user.click(screen.getByRole("button", { name: "Start" }));
    expect(await screen.findByText("a process of this host")).toBeTruthy();
    expect(asked.some(({ url, init }) => url.pathname.endsWith("/playground/served") && init.method === "POST")).toBe(true);
  });

  it("asks nothing where the portal only shows", async () => {
    serve({ "/session": SESSION, "/playground/served": SERVED });
    await renderAt("/playground");
    expect(await screen.findByText("This portal only shows")).toBeTruthy();
  });

  it("sends the page with the prompt, and shows the answer with its figures", async () => {
    const { asked } = serve({ "/session": { ...SESSION, may_submit: true }, "/playground/served": SERVED, "/playground/questions": () => new Response(STREAM) });
    await renderAt("/playground");
    const user = userEvent.setup();
    const file = new File(["page"], "page.png", { type: "image/png" });
    fireEvent.change(await screen.findByLabelText(/Drop a page/), { target: { files: { item: () => file } } });
    await screen.findByRole("img", { name: "page.png" });
    await user.clear(screen.getByRole("textbox", { name: "Prompt" }));
    await user.type(screen.getByRole("textbox", { name: "Prompt" }), "Total?");
    await user.click(screen.getByRole("button", { name: "Ask" }));
    expect(await screen.findByText("12,50")).toBeTruthy();
    expect(screen.getByText(/90 tokens of prompt · 4 tokens of answer/)).toBeTruthy();
    await waitFor(() => expect(asked.some(({ url }) => url.pathname.endsWith("/playground/questions"))).toBe(true));
  });

  it("keeps the question and what came of its answer when the model ends", async () => {
    let rows: readonly object[] = SERVED;
    serve({ "/session": { ...SESSION, may_submit: true }, "/playground/served": () => rows, "/playground/questions": () => new Response(STREAM) });
    await renderAt("/playground");
    const user = userEvent.setup();
    await user.clear(await screen.findByRole("textbox", { name: "Prompt" }));
    await user.type(screen.getByRole("textbox", { name: "Prompt" }), "Total?");
    await user.click(screen.getByRole("button", { name: "Ask" }));
    expect(await screen.findByText("12,50")).toBeTruthy();
    rows = [];
    expect(await screen.findByText("No model is served", {}, { timeout: 7_000 })).toBeTruthy();
    expect(screen.getByText("12,50")).toBeTruthy();
    rows = SERVED;
    expect(await screen.findByDisplayValue("Total?", {}, { timeout: 7_000 })).toBeTruthy();
  }, 15_000);

  it("ends an answer when its page is left", async () => {
    const { asked } = serve({ "/session": { ...SESSION, may_submit: true }, "/playground/served": SERVED, "/playground/questions": () => new Response(new ReadableStream()) });
    const { history } = await renderAt("/playground");
    await userEvent.setup().click(await screen.findByRole("button", { name: "Ask" }));
    const signal = await waitFor(() => asked.find(({ url }) => url.pathname.endsWith("/playground/questions"))?.init.signal ?? expect.fail("not asked"));
    expect(signal.aborted).toBe(false);
    act(() => history.push("/"));
    await waitFor(() => expect(signal.aborted).toBe(true));
  });
});
