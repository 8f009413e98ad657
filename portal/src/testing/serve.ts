import { vi } from "vitest";
import type { Session } from "../api/schema";

/** Path below the API → what is answered: a value, or what becomes of the request. */
export type Served = Readonly<Record<string, unknown>>;

type Make = (url: URL, init: RequestInit) => unknown;

export const SESSION: Session = {
  user: "ada",
  host: "login1",
  version: "0.1.0",
  home: "/home/ada/hpcbench",
  mode: "dev",
  may_edit: true,
  may_submit: false,
  expires: Date.now() / 1000 + 900,
  tunnel: "ssh -N -L 127.0.0.1:8787:/run/user/1/hpcbench/portal.sock ada@login1",
  news: 0,
};

/** A stream of messages that a test speaks through. */
export class FakeEventSource {
  static opened: FakeEventSource[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { readonly data: string }) => void) | null = null;
  onerror: (() => void) | null = null;
  closed = false;

  constructor(readonly url: string) {
    FakeEventSource.opened.push(this);
  }

  close(): void {
    this.closed = true;
  }

  say(news: object): void {
    this.onmessage?.({ data: JSON.stringify(news) });
  }
}

/** See `testing`. A value that is a `Response` is sent as it is, a function is asked. */
export function serve(answers: Served): { readonly asked: readonly { readonly url: URL; readonly init: RequestInit }[] } {
  const all: Served = { "/session": SESSION, "/events/poll": { news: [], seq: 1 }, ...answers };
  const asked: { url: URL; init: RequestInit }[] = [];
  FakeEventSource.opened = [];
  vi.stubGlobal("EventSource", FakeEventSource);
  vi.stubGlobal("fetch", async (place: string, init: RequestInit = {}) => {
    const url = new URL(place, "http://localhost/");
    asked.push({ url, init });
    const path = decodeURIComponent(url.pathname.replace(/^\/api\/v1/, ""));
    const found = all[`${init.method ?? "GET"} ${path}`] ?? all[path];
    const value: unknown = typeof found === "function" ? await (found as Make)(url, init) : found;
    if (value instanceof Response) return value;
    if (value === undefined) return Response.json({ error: `nothing is served at ${path}`, remedy: "", code: "not_found", id: "" }, { status: 404 });
    return Response.json(value);
  });
  return { asked };
}
