import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { News } from "../api/types";
import { FakeEventSource, serve } from "../testing/serve";
import { LiveStream } from "./live-stream";

/** Tabs of one browser: a lock that one has at a time, and a channel that reaches all others. */
class Browser {
  private held = false;
  private readonly waiting: (() => void)[] = [];
  private readonly ears = new Set<FakeChannel>();

  install(): void {
    FakeChannel.ears = this.ears;
    vi.stubGlobal("BroadcastChannel", FakeChannel);
    Object.defineProperty(navigator, "locks", { configurable: true, value: { request: this.request } });
  }

  private readonly request = async (_name: string, options: { readonly signal: AbortSignal }, act: () => Promise<void>): Promise<void> => {
    if (this.held) await new Promise<void>((resolve) => this.waiting.push(resolve));
    if (options.signal.aborted) return this.waiting.shift()?.();
    this.held = true;
    await act();
    this.held = false;
    this.waiting.shift()?.();
  };
}

class FakeChannel {
  static ears = new Set<FakeChannel>();
  onmessage: ((event: { readonly data: unknown }) => void) | null = null;

  constructor() {
    FakeChannel.ears.add(this);
  }

  postMessage(data: unknown): void {
    for (const one of FakeChannel.ears) if (one !== this) one.onmessage?.({ data: structuredClone(data) });
  }

  close(): void {
    FakeChannel.ears.delete(this);
  }
}

const cluster = (seq: number): News => ({ kind: "cluster", seq, time: seq });
const seqs = (stream: LiveStream) => {
  const found: number[] = [];
  stream.onNews((news) => found.push(news.seq));
  return found;
};
const open = () => FakeEventSource.opened.filter(({ closed }) => !closed);

let tabs: LiveStream[];
const tab = () => {
  const made = new LiveStream();
  tabs.push(made);
  return made;
};

beforeEach(() => {
  vi.useFakeTimers();
  tabs = [];
  new Browser().install();
});

afterEach(() => {
  for (const one of tabs) one.stop();
  Reflect.deleteProperty(navigator, "locks");
});

describe("one stream for all tabs", () => {
  it("is opened by one of them, and all hear it", async () => {
    serve({});
    const [one, two] = [tab(), tab()];
    const heard = [seqs(one), seqs(two)];
    one.start(0);
    two.start(0);
    await vi.advanceTimersByTimeAsync(10);
    expect(open()).toHaveLength(1);
    open()[0]?.onopen?.();
    open()[0]?.say(cluster(5));
    expect(heard).toEqual([[5], [5]]);
    expect([one.state().state, two.state().state]).toEqual(["live", "live"]);
  });

  it("is taken over from where it was when its tab closes", async () => {
    serve({});
    const [one, two] = [tab(), tab()];
    const heard = seqs(two);
    one.start(0);
    two.start(0);
    await vi.advanceTimersByTimeAsync(10);
    open()[0]?.onopen?.();
    open()[0]?.say(cluster(5));
    one.stop();
    await vi.advanceTimersByTimeAsync(10);
    expect(open().map(({ url }) => url)).toEqual(["api/v1/events?after=5"]);
    open()[0]?.say(cluster(6));
    expect(heard).toEqual([5, 6]);
  });

  it("is opened by a tab of its own where the leader is silent", async () => {
    serve({});
    const [one, two] = [tab(), tab()];
    one.start(0);
    two.start(0);
    await vi.advanceTimersByTimeAsync(10);
    // Frozen in the background: it has the lock, and does nothing.
    vi.spyOn(FakeChannel.prototype, "postMessage").mockImplementation(() => undefined);
    await vi.advanceTimersByTimeAsync(40_000);
    expect(open()).toHaveLength(2);
  });
});

describe("messages", () => {
  it("are heard from the session on, whatever was fetched before the stream was there", async () => {
    serve({});
    tab().start(41);
    await vi.advanceTimersByTimeAsync(10);
    expect(open().map(({ url }) => url)).toEqual(["api/v1/events?after=41"]);
  });

  it("are told once, however often they come", async () => {
    serve({});
    const one = tab();
    const heard = seqs(one);
    one.start(0);
    await vi.advanceTimersByTimeAsync(10);
    for (const seq of [3, 3, 4, 2]) open()[0]?.say(cluster(seq));
    expect(heard).toEqual([3, 4]);
  });

  it("begin anew after a reset, also from a smaller number", async () => {
    serve({});
    const one = tab();
    const heard = seqs(one);
    one.start(0);
    await vi.advanceTimersByTimeAsync(10);
    open()[0]?.say(cluster(900));
    open()[0]?.say({ kind: "reset", seq: 10, time: 1 });
    open()[0]?.say(cluster(11));
    expect(heard).toEqual([900, 10, 11]);
  });
});

describe("a connection that breaks", () => {
  it("is reconnecting, then stale, and live again without a reload", async () => {
    let gone = true;
    serve({ "/events/poll": () => (gone ? new Response("", { status: 502 }) : { news: [], seq: 7 }) });
    const one = tab();
    one.start(0);
    await vi.advanceTimersByTimeAsync(10);
    open()[0]?.onopen?.();
    open()[0]?.say(cluster(7));
    open()[0]?.onerror?.();
    expect(one.state().state).toBe("reconnecting");
    await vi.advanceTimersByTimeAsync(20_000);
    expect(one.state().state).toBe("stale");
    gone = false;
    await vi.advanceTimersByTimeAsync(10_000);
    open()[0]?.onopen?.();
    expect(one.state()).toEqual({ state: "live", since: null });
  });

  it("is given up for long polls after two failures, and nothing is lost", async () => {
    let told = false;
    serve({
      "/events/poll": (url: URL) => {
        const wait = Number(url.searchParams.get("wait"));
        if (wait === 0) return { news: [], seq: 7 };
        if (told) return new Promise(() => undefined);
        told = true;
        return { news: [cluster(8)], seq: 8 };
      },
    });
    const one = tab();
    const heard = seqs(one);
    one.start(0);
    await vi.advanceTimersByTimeAsync(10);
    open()[0]?.onerror?.();
    await vi.advanceTimersByTimeAsync(3000);
    open()[0]?.onerror?.();
    await vi.advanceTimersByTimeAsync(5000);
    expect(open()).toHaveLength(0);
    expect(heard).toEqual([8]);
    expect(one.state().state).toBe("live");
  });

  it("is opened anew after the computer slept", async () => {
    serve({});
    const one = tab();
    one.start(0);
    await vi.advanceTimersByTimeAsync(10);
    open()[0]?.onopen?.();
    open()[0]?.say(cluster(7));
    vi.setSystemTime(Date.now() + 3_600_000);
    await vi.advanceTimersByTimeAsync(3000);
    expect(open().map(({ url }) => url)).toEqual(["api/v1/events?after=7"]);
  });
});
