import type { News } from "../api/types";
import { now } from "../clock";
import { type Line, openLine } from "./live-line";

/** How the connection is. */
export interface LiveState {
  readonly state: "live" | "reconnecting" | "stale" | "off";
  /** Since when nothing is known, seconds since the epoch; null: it is live. */
  readonly since: number | null;
}

type Said =
  | { readonly kind: "news"; readonly news: News }
  | { readonly kind: "state"; readonly open: boolean }
  | { readonly kind: "hello" };

const NAME = "hpcbench-live";
/** Milliseconds between the leader's signs of life. */
const BEAT = 10_000;
/** So long may a leader be silent before a tab helps itself. */
const PATIENCE = 27_000;
/** So long a broken connection is called reconnecting, then stale. */
const STALE = 15_000;

/** Live messages, over one connection for all tabs of the browser: HTTP/1.1 has six, and each tab would hold one.
 *
 * The tab that holds a Web Lock leads and hands on what it hears; when it closes, the next one gets the lock. Tabs
 * that hear nothing from a leader, and browsers without locks, open their own.
 */
export class LiveStream {
  private readonly news = new Set<(news: News) => void>();
  private readonly states = new Set<() => void>();
  private current: LiveState = { state: "off", since: null };
  private channel: BroadcastChannel | null = null;
  private line: Line | null = null;
  private seq = 0;
  private heard = 0;
  private broken: number | null = null;
  private timer: ReturnType<typeof setInterval> | undefined;
  private ended = new AbortController();

  /** Begins to listen; again after `stop`.
   *
   * @param after - number of the newest message before anything was fetched: what changes meanwhile is news
   */
  start(after: number): void {
    if (this.timer !== undefined) return;
    this.seq = after;
    this.ended = new AbortController();
    this.heard = Date.now();
    this.set(false);
    if (!("locks" in navigator) || typeof BroadcastChannel === "undefined") this.listen();
    else this.share();
    let last = Date.now();
    this.timer = setInterval(() => {
      const at = Date.now();
      // The computer slept: what was open is dead, whatever it says.
      if (at - last > 4 * BEAT) this.wake();
      last = at;
      this.beat(at);
    }, BEAT / 4);
  }

  /** Hangs up. */
  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
    this.ended.abort();
    this.line?.close();
    this.line = null;
    this.channel?.close();
    this.channel = null;
    this.put({ state: "off", since: null });
  }

  /** Connects again, from where it was. */
  wake(): void {
    this.line?.again();
  }

  readonly onNews = (listener: (news: News) => void): (() => void) => {
    this.news.add(listener);
    return () => this.news.delete(listener);
  };

  readonly onState = (listener: () => void): (() => void) => {
    this.states.add(listener);
    return () => this.states.delete(listener);
  };

  readonly state = (): LiveState => this.current;

  private share(): void {
    const channel = new BroadcastChannel(NAME);
    this.channel = channel;
    channel.onmessage = ({ data }: MessageEvent<Said>) => this.told(data);
    channel.postMessage({ kind: "hello" } satisfies Said);
    const leading = navigator.locks.request(NAME, { signal: this.ended.signal }, async () => {
      if (!this.line) this.listen();
      await new Promise<void>((resolve) => this.ended.signal.addEventListener("abort", () => resolve()));
    });
    // Aborted before it was our turn.
    leading.catch(() => undefined);
  }

  private told(said: Said): void {
    if (said.kind === "hello") {
      if (this.line) this.tellState();
      return;
    }
    this.heard = Date.now();
    if (this.line) return;
    if (said.kind === "news") this.take(said.news);
    else this.set(said.open);
  }

  private tell(said: Said): void {
    this.channel?.postMessage(said);
  }

  private tellState(): void {
    this.tell({ kind: "state", open: this.broken === null });
  }

  private listen(): void {
    this.line = openLine(this.seq, {
      news: (news) => {
        if (this.take(news)) this.tell({ kind: "news", news });
      },
      open: (open) => {
        this.set(open);
        this.tellState();
      },
    });
  }

  private beat(at: number): void {
    if (this.line) this.tellState();
    else if (at - this.heard > PATIENCE) this.listen();
    if (this.broken !== null && at - this.broken > STALE) this.put({ state: "stale", since: this.current.since });
  }

  private set(open: boolean): void {
    if (open) {
      this.broken = null;
      this.put({ state: "live", since: null });
    } else if (this.broken === null) {
      this.broken = Date.now();
      this.put({ state: "reconnecting", since: now() });
    }
  }

  private put(next: LiveState): void {
    if (next.state === this.current.state && next.since === this.current.since) return;
    this.current = next;
    for (const listener of this.states) listener();
  }

  /** Hands a message on; whether it was new. Numbers only grow, except where a `reset` says so. */
  private take(news: News): boolean {
    if (news.kind !== "reset" && news.seq <= this.seq) return false;
    this.seq = news.seq;
    for (const listener of this.news) listener(news);
    return true;
  }
}
