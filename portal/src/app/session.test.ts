import { beforeEach, describe, expect, it, vi } from "vitest";
import { SESSION, serve } from "../testing/serve";

const load = () => import("./session");

let session: Awaited<ReturnType<typeof load>>;

beforeEach(async () => {
  vi.resetModules();
  vi.useFakeTimers({ now: 1_800_000_000_000 });
  location.hash = "";
  session = await load();
});

const NOW = 1_800_000_000;
const lasting = (seconds: number) => ({ ...SESSION, expires: NOW + seconds });
const refused = () => Response.json({ error: "no session", remedy: "", code: "not_signed_in", id: "" }, { status: 401 });

describe("the code in the link", () => {
  it("is gone from the address before anything else happens", () => {
    location.hash = "#t=abc-DEF_1";
    expect(session.takeCode()).toBe("abc-DEF_1");
    expect(location.hash).toBe("#/");
    expect(session.takeCode()).toBeNull();
  });

  it("is sent once, in a body", async () => {
    const { asked } = serve({ "POST /session": lasting(900) });
    await session.begin("abc");
    expect(session.sessionState()).toMatchObject({ phase: "in", session: { user: "ada" } });
    expect(asked.map(({ url, init }) => [url.href, init.method, init.body])).toEqual([["http://localhost/api/v1/session", "POST", '{"code":"abc"}']]);
  });

  it("may be used up, and is not needed where there is a session already", async () => {
    serve({ "POST /session": refused, "GET /session": lasting(900) });
    await session.begin("old");
    expect(session.sessionState().phase).toBe("in");
  });

  it("is found in a whole link that is pasted", async () => {
    const { asked } = serve({ "POST /session": lasting(900) });
    await session.signIn("  http://localhost:8787/#t=xyz ");
    expect(asked[0]?.init.body).toBe('{"code":"xyz"}');
  });
});

describe("the session", () => {
  it("is asked for at the door where there is none, saying nothing of an end", async () => {
    serve({ "GET /session": refused, "POST /session/refresh": refused });
    await session.begin(null);
    expect(session.sessionState()).toMatchObject({ phase: "out", why: null });
  });

  it("is renewed before it ends, without being asked", async () => {
    let until = 900;
    const { asked } = serve({ "GET /session": () => lasting(until), "POST /session/refresh": () => lasting((until += 900)) });
    await session.begin(null);
    await vi.advanceTimersByTimeAsync((900 - 119) * 1000);
    expect(asked.filter(({ init }) => init.method === "POST")).toHaveLength(1);
    expect(session.sessionState().session?.expires).toBe(NOW + 1800);
  });

  it("is renewed once for all who ask at the same time", async () => {
    const { asked } = serve({ "GET /session": refused, "POST /session/refresh": lasting(900) });
    expect(await Promise.all([session.renew(), session.renew(), session.renew()])).toEqual([true, true, true]);
    expect(asked.filter(({ url }) => url.pathname.endsWith("refresh"))).toHaveLength(1);
  });

  it("is not renewed again where another tab has just done it: a used key would end it", async () => {
    const { asked } = serve({ "GET /session": lasting(890) });
    expect(await session.renew()).toBe(true);
    expect(asked.some(({ url }) => url.pathname.endsWith("refresh"))).toBe(false);
  });

  it("ends at the door, and says so", async () => {
    let over = false;
    serve({ "GET /session": () => (over ? refused() : lasting(900)), "POST /session/refresh": refused });
    await session.begin(null);
    over = true;
    expect(await session.renew()).toBe(false);
    expect(session.sessionState()).toMatchObject({ phase: "out", why: "The session has ended." });
  });
});

describe("a portal that is gone", () => {
  it("is looked for until it is back, and everybody is told; who was signed in stays so", async () => {
    let gone = false;
    const back = vi.fn();
    serve({ "GET /session": () => (gone ? new Response("", { status: 502 }) : lasting(9000)) });
    await session.begin(null);
    session.onBack(back);
    gone = true;
    await session.look();
    expect(session.sessionState()).toMatchObject({ phase: "in", reachable: false, since: NOW, session: { tunnel: SESSION.tunnel } });
    await vi.advanceTimersByTimeAsync(20_000);
    expect(back).not.toHaveBeenCalled();
    gone = false;
    await vi.advanceTimersByTimeAsync(9000);
    expect(session.sessionState()).toMatchObject({ phase: "in", reachable: true, since: null });
    expect(back).toHaveBeenCalledOnce();
  });
});
