/** The one event stream of the page: its status, and the events in batches. */
import { batch, effect, signal } from "@preact/signals";

import { EventStream, type StreamStatus } from "../api/event_stream";
import type { AppEvent } from "../api/types";
import type { ServerEvent } from "../model/sse";
import { authStatus } from "./auth";

/** A browser opens six connections to a host, for all of its tabs. One that nobody sees gives up its own after this time. */
const HIDDEN_STREAM_MS = 30_000;
/** A page that is not visible gets no animation frames. */
const HIDDEN_INTERVAL_MS = 250;
/** After a large batch the page needs time for other things. */
const BUSY_INTERVAL_MS = 80;
const BUSY_EVENTS = 100;
/** Events that listeners get at once. The next ones follow in the same batch, if there is time. */
const MAX_EVENTS = 200;
const MAX_FLUSH_MS = 12;

export interface Connection {
  status: StreamStatus | "closed";
  /** When the next attempt starts (`Date.now()`), for the status `waiting`. */
  retryAt: number;
  /** It was open before: what the page shows may be old. */
  wasOpen: boolean;
}

export const connection = signal<Connection>({ status: "closed", retryAt: 0, wasOpen: false });

const EMPTY_EVENT: AppEvent = { kind: "", time: 0, sessionId: "", runId: "", sequence: -1, data: {} };

type Listener = (events: AppEvent[]) => void;
const listeners = new Set<Listener>();

let stream: EventStream | undefined;
let watchedSession: string | undefined;
let pending: AppEvent[] = [];
let isScheduled = false;

/** Call `listener` with the events of each batch. `stream.started` and `stream.reset` mean: fetch again. */
export function onEvents(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follow all events of a session; those of other sessions come without their details. */
export function watchSession(sessionId: string | undefined): void {
  if (stream !== undefined && watchedSession === sessionId) return;
  watchedSession = sessionId;
  if (authStatus.peek() === "signed-in") connect();
}

export function retryConnection(): void {
  stream?.retry();
}

/** Connect while somebody is signed in. */
export function startLive(): void {
  effect(() => {
    if (authStatus.value === "signed-in") connect();
    else disconnect();
  });
  addEventListener("online", retryConnection);
  let pause = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(pause);
    if (document.visibilityState === "visible") {
      stream?.unpause();
      retryConnection();
    } else {
      pause = window.setTimeout(() => stream?.pause(), HIDDEN_STREAM_MS);
    }
  });
}

function connect(): void {
  stream?.close();
  pending = [];
  stream = new EventStream(
    "/api/events",
    { sessionId: watchedSession },
    {
      onEvents: enqueue,
      onStatus: (status, retryAt) => {
        const { wasOpen } = connection.peek();
        connection.value = { status, retryAt, wasOpen: wasOpen || status === "open" };
      },
    },
  );
}

function disconnect(): void {
  stream?.close();
  stream = undefined;
  pending = [];
  connection.value = { status: "closed", retryAt: 0, wasOpen: false };
}

function enqueue(events: ServerEvent[]): void {
  for (const { event, data } of events) pending.push({ ...EMPTY_EVENT, kind: event, ...(JSON.parse(data) as Partial<AppEvent>) });
  schedule(0);
}

function schedule(delay: number): void {
  if (isScheduled) return;
  isScheduled = true;
  if (document.visibilityState === "hidden") setTimeout(flush, HIDDEN_INTERVAL_MS);
  else if (delay > 0) setTimeout(flush, delay);
  else requestAnimationFrame(flush);
}

/** One that fails must not end the stream for the others. */
function notifyListener(listener: Listener, events: AppEvent[]): void {
  try {
    listener(events);
  } catch (error) {
    console.error(error);
  }
}

function flush(): void {
  const end = performance.now() + MAX_FLUSH_MS;
  const count = pending.length;
  batch(() => {
    while (pending.length > 0 && performance.now() < end) {
      const events = pending.splice(0, MAX_EVENTS);
      for (const listener of listeners) notifyListener(listener, events);
    }
  });
  isScheduled = false;
  if (pending.length > 0) {
    schedule(0);
  } else if (count >= BUSY_EVENTS) {
    // Hold the next batch back, even if its events arrive at once.
    isScheduled = true;
    setTimeout(() => {
      isScheduled = false;
      if (pending.length > 0) schedule(0);
    }, BUSY_INTERVAL_MS);
  }
}
