import { FaultError, fetchJson } from "../api/client";
import type { Polled } from "../api/schema";
import type { News } from "../api/types";
import { renew } from "./session";

/** A connection to the portal. */
export interface Line {
  /** Connects again, from where it was. */
  again(): void;
  close(): void;
}

interface Ears {
  news(news: News): void;
  open(open: boolean): void;
}

/** After so many failures in a row the stream is given up for polls. */
const FAILURES = 2;
/** Milliseconds of silence after which is asked whether something was missed. */
const SILENCE = 30_000;
/** Polls wait so long on the portal's side, seconds. */
const WAIT = 20;
/** After so many polls the stream is tried again. */
const POLLS = 90;

/** Opens a stream of messages; falls back to long polls where the stream does not come through.
 *
 * @param after - number of the last message there is already
 */
export function openLine(after: number, ears: Ears): Line {
  return new Connection(after, ears);
}

function reset(polled: Polled): boolean {
  return polled.news.some((news) => news.kind === "reset");
}

class Connection implements Line {
  private source: EventSource | null = null;
  private polling: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private closed = false;

  constructor(
    private seq: number,
    private readonly ears: Ears,
  ) {
    this.again();
  }

  again(): void {
    this.hangUp();
    if (!this.closed) this.stream();
  }

  close(): void {
    this.closed = true;
    this.hangUp();
  }

  private hangUp(): void {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.source?.close();
    this.source = null;
    this.polling?.abort();
    this.polling = null;
  }

  private stream(): void {
    const source = new EventSource(this.place("events"));
    this.source = source;
    source.onopen = () => {
      this.ears.open(true);
      this.listenFor(source);
    };
    source.onmessage = ({ data }: MessageEvent<string>) => {
      this.failures = 0;
      this.hear(JSON.parse(data) as News);
      this.listenFor(source);
    };
    source.onerror = () => {
      if (this.source !== source) return;
      this.ears.open(false);
      this.failures += 1;
      this.hangUp();
      this.timer = setTimeout(() => void this.after(), Math.min(8000, 500 * 2 ** this.failures));
    };
  }

  private place(path: string, more: readonly string[] = []): string {
    return `api/v1/${path}?${[`after=${this.seq}`, ...more].join("&")}`;
  }

  private hear(news: News): void {
    this.seq = news.kind === "reset" ? news.seq : Math.max(news.seq, this.seq);
    this.ears.news(news);
  }

  /** The stream failed. It does not say why: a poll does, and renews the session where that has ended. */
  private async after(): Promise<void> {
    const polling = this.begin();
    try {
      await this.ask(polling.signal, 0);
    } catch (error) {
      if (polling.signal.aborted) return;
      if (error instanceof FaultError && error.status === 401) await renew();
      this.timer = setTimeout(() => void this.after(), Math.min(8000, 500 * 2 ** this.failures++));
      return;
    }
    if (this.failures >= FAILURES) await this.poll(polling.signal);
    else this.again();
  }

  private begin(): AbortController {
    this.polling?.abort();
    this.polling = new AbortController();
    return this.polling;
  }

  /** Long polls, one behind the other. */
  private async poll(signal: AbortSignal): Promise<void> {
    this.ears.open(true);
    try {
      for (let count = 0; count < POLLS && !signal.aborted; count += 1) await this.ask(signal, WAIT);
    } catch {
      if (signal.aborted) return;
      this.ears.open(false);
    }
    if (signal.aborted) return;
    this.failures = 0;
    this.timer = setTimeout(() => this.again(), 1000);
  }

  private async ask(signal: AbortSignal, wait: number): Promise<number> {
    const polled = (await fetchJson(this.place("events/poll", [`wait=${wait}`]), signal)) as Polled;
    for (const news of polled.news) this.hear(news);
    this.seq = Math.max(polled.seq, reset(polled) ? 0 : this.seq);
    return polled.news.length;
  }

  /** Proxies may hold a stream back, and tunnels die in silence: after a while without a word a poll looks. */
  private listenFor(source: EventSource): void {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => void this.check(source), SILENCE);
  }

  private async check(source: EventSource): Promise<void> {
    const polling = this.begin();
    try {
      const missed = await this.ask(polling.signal, 0);
      if (this.source !== source) return;
      if (missed > 0 && ++this.failures >= FAILURES) {
        source.close();
        this.source = null;
        await this.poll(polling.signal);
      } else this.listenFor(source);
    } catch {
      if (polling.signal.aborted || this.source !== source) return;
      this.ears.open(false);
      this.failures += 1;
      this.again();
    }
  }
}
