/** The event stream of the gateway, over fetch, with reconnection. */
import { isSignedOut, withQuery } from "./client";
import { SseParser, type ServerEvent } from "../model/sse";

const MIN_DELAY_MS = 800;
const MAX_DELAY_MS = 15_000;
/** The gateway sends a comment every 10 seconds: after three of them the connection is dead. */
const MAX_SILENCE_MS = 31_000;

const MAX_PAUSE_MS = 2 ** 31 - 1;

export type StreamStatus = "connecting" | "open" | "waiting";

export interface StreamHandlers {
  onEvents(events: ServerEvent[]): void;
  /** `retryAt` is a time of `Date.now()`, for the status `waiting`. */
  onStatus(status: StreamStatus, retryAt: number): void;
}

/** Reads `path` until it is closed. After a disconnect it continues after the last event. */
export class EventStream {
  #controller = new AbortController();
  #lastId = "";
  #attempt = 0;
  #wake: (() => void) | undefined;
  #isClosed = false;
  #isPaused = false;

  constructor(
    readonly path: string,
    readonly query: Record<string, string | undefined>,
    readonly handlers: StreamHandlers,
  ) {
    void this.#run();
  }

  close(): void {
    this.#isClosed = true;
    this.#controller.abort();
    this.#wake?.();
  }

  /** Try to connect now, if it waits before the next attempt. */
  retry(): void {
    this.#attempt = 0;
    this.#wake?.();
  }

  /** Disconnect until `unpause`, which continues after the last event. */
  pause(): void {
    this.#isPaused = true;
    this.#controller.abort();
  }

  unpause(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#wake?.();
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      while (this.#isPaused && !this.#isClosed) await this.#pause(MAX_PAUSE_MS);
      if (this.#isClosed) return;
      this.handlers.onStatus("connecting", 0);
      await this.#readOnce();
      if (this.#isClosed) return;
      if (this.#isPaused) continue;
      const delay = nextDelay(this.#attempt, Math.random());
      this.#attempt += 1;
      this.handlers.onStatus("waiting", Date.now() + delay);
      await this.#pause(delay);
    }
  }

  async #readOnce(): Promise<void> {
    this.#controller = new AbortController();
    const watchdog = { timer: 0 };
    const expectMore = () => {
      clearTimeout(watchdog.timer);
      watchdog.timer = window.setTimeout(() => this.#controller.abort(), MAX_SILENCE_MS);
    };
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (this.#lastId !== "") headers["Last-Event-ID"] = this.#lastId;
      expectMore();
      const response = await fetch(withQuery(this.path, this.query), {
        headers,
        credentials: "same-origin",
        cache: "no-store",
        signal: this.#controller.signal,
      });
      if (response.status === 401) {
        isSignedOut.value = true;
        this.close();
        return;
      }
      if (!response.ok || response.body === null) return;
      await this.#readBody(response.body, expectMore);
    } catch {
      // The connection broke: the caller connects again.
    } finally {
      clearTimeout(watchdog.timer);
    }
  }

  async #readBody(body: ReadableStream<Uint8Array>, expectMore: () => void): Promise<void> {
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    this.handlers.onStatus("open", 0);
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#isClosed) return;
      this.#attempt = 0;
      expectMore();
      const events = parser.feed(decoder.decode(value, { stream: true }));
      const last = events.at(-1);
      if (last === undefined) continue;
      if (last.id !== "") this.#lastId = last.id;
      this.handlers.onEvents(events);
    }
  }

  async #pause(milliseconds: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = window.setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }
}

/** Return how long to wait before the next attempt: doubled each time, with jitter (`random` is below 1). */
export function nextDelay(attempt: number, random: number): number {
  const most = Math.min(MAX_DELAY_MS, MIN_DELAY_MS * 2 ** attempt);
  return Math.max(MIN_DELAY_MS, most * (0.5 + random / 2));
}
