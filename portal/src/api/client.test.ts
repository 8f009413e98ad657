import { afterEach, describe, expect, it } from "vitest";
import { serve } from "../testing/serve";
import { address, ask, FaultError, forgetAnswers, send, setGuardian } from "./client";

afterEach(() => {
  forgetAnswers();
  setGuardian({ renew: () => Promise.resolve(false), reached: () => undefined });
});

const refused = () => Response.json({ error: "the session has ended", remedy: "hpcbench portal url", code: "not_signed_in", id: "r1" }, { status: 401 });

describe("addresses", () => {
  it("are relative, and quote what stands in them", () => {
    const found = address("/experiments/{experiment}/run-tasks/{run_task}", { path: { experiment: "a b", run_task: "../x?y#z" } });
    expect(found).toBe("api/v1/experiments/a%20b/run-tasks/..%2Fx%3Fy%23z");
  });

  it("sort their query, repeat lists, and leave out what is empty", () => {
    expect(address("/experiments", { query: { text: "", state: ["done", "lost"], after: null, limit: 5 } })).toBe("api/v1/experiments?limit=5&state=done&state=lost");
  });
});

describe("requests", () => {
  it("ask again by ETag, and give the very same answer where nothing changed", async () => {
    const { asked } = serve({
      "/cluster": (_: URL, { headers }: RequestInit) =>
        (headers as Record<string, string>)["If-None-Match"] === '"1"' ? new Response(null, { status: 304 }) : Response.json({ available: true }, { headers: { ETag: '"1"' } }),
    });
    const first = await ask("/cluster", {});
    expect(await ask("/cluster", {})).toBe(first);
    expect(asked).toHaveLength(2);
  });

  it("are sent once more where the session could be renewed", async () => {
    let signedIn = false;
    const { asked } = serve({ "/cluster": () => (signedIn ? { available: false } : refused()) });
    setGuardian({ renew: () => Promise.resolve((signedIn = true)), reached: () => undefined });
    expect(await ask("/cluster", {})).toEqual({ available: false });
    expect(asked).toHaveLength(2);
  });

  it("tell what went wrong, with its number", async () => {
    serve({ "/cluster": refused });
    await expect(ask("/cluster", {})).rejects.toMatchObject({ status: 401, fault: { id: "r1" }, message: "the session has ended" });
  });

  it("say that nobody is there, also through a proxy", async () => {
    const reached: boolean[] = [];
    setGuardian({ renew: () => Promise.resolve(false), reached: (answered) => reached.push(answered) });
    serve({ "/cluster": () => new Response("Bad gateway", { status: 502 }) });
    await expect(ask("/cluster", {})).rejects.toSatisfy((error) => error instanceof FaultError && error.unreachable);
    expect(reached).toEqual([false]);
  });

  it("that change something say that they come from here", async () => {
    const { asked } = serve({ "DELETE /tokens/t1": () => new Response(null, { status: 204 }) });
    expect(await send("delete", "/tokens/{id}", { path: { id: "t1" } })).toBeNull();
    expect(asked[0]?.init.headers).toMatchObject({ "X-Hpcbench": "1" });
  });
});
