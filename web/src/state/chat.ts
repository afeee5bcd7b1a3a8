/** The turns of a session: stored ones in pages, running ones from the event stream. */
import { type Signal, effect, signal, untracked } from "@preact/signals";

import { ApiError, request } from "../api/client";
import type { AppEvent, RunInfo, SessionDocument, SessionInfo } from "../api/types";
import { applyEvents } from "../model/live_turn";
import { isSteering } from "../model/outbox";
import { turnsFromDocument } from "../model/stored_turn";
import { type Turn, emptyTurn, isLive } from "../model/turn";
import { noteServerTime } from "./clock";
import { onEvents, watchSession } from "./live";
import { notify } from "./notices";
import { outbox } from "./outbox";

const PAGE_TURNS = 20;
/** As many as a window shows at once: the first look should not wait for more. */
const FIRST_TURNS = 6;
/** If the session is known, so many turns show what has changed. */
const REFRESH_TURNS = 4;
const MAX_OPEN_CHATS = 6;
const REPLY_POLL_MS = 200;
export const STOP_REASON = "stopped by the user";

export interface ChatInfo {
  status: "loading" | "ready" | "failed" | "missing";
  session: SessionInfo | undefined;
  /** Ids of the runs, oldest first. */
  runIds: readonly string[];
  nextCursor: string | null;
  isLoadingOlder: boolean;
  error: unknown;
}

/** One session as this page knows it. It stays in memory for a while after the user leaves it. */
export class ChatStore {
  readonly info = signal<ChatInfo>({
    status: "loading",
    session: undefined,
    runIds: [],
    nextCursor: null,
    isLoadingOlder: false,
    error: undefined,
  });
  readonly #turns = new Map<string, Signal<Turn>>();
  #loadingOlder: Promise<void> | undefined;
  #loading = Promise.resolve();

  constructor(readonly sessionId: string) {}

  turn(runId: string): Signal<Turn> {
    let turn = this.#turns.get(runId);
    if (turn === undefined) {
      turn = signal(emptyTurn(runId));
      this.#turns.set(runId, turn);
    }
    return turn;
  }

  /** The run that works now, or the first that is queued. */
  get liveTurn(): Turn | undefined {
    const turns = this.info.value.runIds.map((runId) => this.turn(runId).value).filter(isLive);
    return turns.find((turn) => turn.status !== "queued") ?? turns[0];
  }

  /** Read the newest turns, after the last request for them has ended. */
  async load(): Promise<void> {
    this.#loading = this.#loading.then(() => this.#loadNewest());
    return this.#loading;
  }

  async #loadNewest(): Promise<void> {
    try {
      const document = await this.#fetchNewest();
      const turns = turnsFromDocument(document);
      for (const turn of turns) this.#merge(turn);
      const ids = turns.map(({ runId }) => runId);
      const newest = new Set(ids);
      const { runIds, nextCursor, status } = this.info.value;
      // If turns between the known ones and these are missing, the known ones are loaded again.
      const older = this.#isJoined(document) ? runIds.filter((runId) => !newest.has(runId) && !isLive(this.turn(runId).peek())) : [];
      const unstored = runIds.filter((runId) => !newest.has(runId) && isLive(this.turn(runId).peek()));
      this.info.value = {
        ...this.info.value,
        status: "ready",
        session: document.session,
        runIds: [...older, ...ids, ...unstored],
        nextCursor: status === "ready" && older.length > 0 ? nextCursor : (document.nextCursor ?? null),
        error: undefined,
      };
    } catch (error) {
      if (this.info.value.status === "ready") return;
      // It loads when somebody has signed in and the event stream starts.
      if (error instanceof ApiError && error.status === 401) return;
      const isMissing = error instanceof ApiError && error.status === 404;
      this.info.value = { ...this.info.value, status: isMissing ? "missing" : "failed", error };
    }
  }

  /** Load the page before the oldest turn. Callers that come during a load wait for the same one. */
  async loadOlder(): Promise<void> {
    this.#loadingOlder ??= this.#fetchOlder().finally(() => (this.#loadingOlder = undefined));
    return this.#loadingOlder;
  }

  async #fetchOlder(): Promise<void> {
    const { nextCursor } = this.info.value;
    if (nextCursor === null) return;
    this.info.value = { ...this.info.value, isLoadingOlder: true };
    try {
      const document = await this.#fetchPage(nextCursor, PAGE_TURNS);
      const turns = turnsFromDocument(document);
      for (const turn of turns) this.#merge(turn);
      const known = new Set(this.info.value.runIds);
      const ids = turns.map(({ runId }) => runId).filter((runId) => !known.has(runId));
      this.info.value = { ...this.info.value, runIds: [...ids, ...this.info.value.runIds], nextCursor: document.nextCursor ?? null };
    } finally {
      this.info.value = { ...this.info.value, isLoadingOlder: false };
    }
  }

  apply(events: readonly AppEvent[]): void {
    const byRun = new Map<string, AppEvent[]>();
    for (const event of events) {
      if (event.runId === "" || event.sequence < 0) continue;
      const known = byRun.get(event.runId);
      if (known === undefined) byRun.set(event.runId, [event]);
      else known.push(event);
    }
    for (const [runId, ofRun] of byRun) this.#applyToRun(runId, ofRun);
  }

  /** Forget what the events said: the stream starts again with the first one. */
  reset(): void {
    for (const turn of this.#turns.values()) {
      if (isLive(turn.value)) turn.value = { ...emptyTurn(turn.value.runId), prompt: turn.value.prompt, status: turn.value.status };
    }
  }

  #applyToRun(runId: string, events: readonly AppEvent[]): void {
    const turn = this.turn(runId);
    const before = turn.value;
    if (before.lastSequence < 0 && !isLive(before)) return; // Stored, and complete.
    turn.value = applyEvents(before, events);
    if (isLive(before) && !isLive(turn.value) && hasUnseenImages(turn.value)) void this.load();
    // The store has all messages that the turn has collected.
    if (before.status === "queued" && before.activity !== "" && turn.value.status === "running") void this.load();
    if (this.info.value.runIds.includes(runId)) return;
    this.info.value = { ...this.info.value, runIds: [...this.info.value.runIds, runId] };
    this.adoptMessages();
    // The events do not have the message that started the run.
    if (turn.value.prompt === undefined) void this.load();
  }

  /** Show messages that this page has sent in the turns that they start, before these are stored. */
  adoptMessages(): void {
    for (const entry of outbox.peek()) {
      if (isSteering(entry) || !this.info.peek().runIds.includes(entry.runId)) continue;
      const turn = this.turn(entry.runId);
      if (turn.peek().prompt !== undefined) continue;
      const media = entry.attachments.map(({ mediaId, name, type, bytes }) => ({ id: mediaId, name, type, size: bytes, url: `/api/media/${mediaId}` }));
      turn.value = { ...turn.peek(), prompt: { text: entry.text, images: [], media } };
    }
  }

  /** Return the last turns: a few if that shows all that has changed. */
  async #fetchNewest(): Promise<SessionDocument> {
    if (this.info.peek().status !== "ready") return this.#fetchPage(undefined, FIRST_TURNS);
    const document = await this.#fetchPage(undefined, REFRESH_TURNS);
    const newest = new Set(document.turns.map(({ runId }) => runId));
    const hasOtherLive = this.info.peek().runIds.some((runId) => !newest.has(runId) && isLive(this.turn(runId).peek()));
    return this.#isJoined(document) && !hasOtherLive ? document : this.#fetchPage(undefined, PAGE_TURNS);
  }

  /** Tell whether there is no gap between the known turns and the last ones. */
  #isJoined(document: SessionDocument): boolean {
    return document.nextCursor === null || this.info.peek().runIds.includes(document.turns[0]?.runId ?? "");
  }

  async #fetchPage(before: string | undefined, turns: number): Promise<SessionDocument> {
    return request<SessionDocument>(`/api/sessions/${this.sessionId}`, { query: { turns, before } });
  }

  #merge(stored: Turn): void {
    const turn = this.turn(stored.runId);
    if (isLive(stored)) {
      // Its messages are not complete: the events are.
      const known = turn.value;
      const isBehind = !isLive(known) && known.lastSequence >= 0;
      if (isBehind) turn.value = { ...known, prompt: stored.prompt };
      else turn.value = { ...known, prompt: stored.prompt, status: known.lastSequence < 0 ? stored.status : known.status, startedAt: known.startedAt || stored.startedAt };
    } else if (turn.value.lastSequence < 0 || isLive(turn.value) || turn.value.dropped > 0) {
      turn.value = stored;
    } else {
      turn.value = { ...turn.value, prompt: stored.prompt, toolBytes: turn.value.toolBytes ?? stored.toolBytes, calls: withImages(turn.value.calls, stored.calls) };
    }
  }
}

/** Tell whether a program wrote images: the events have only a note, the stored messages have them. */
function hasUnseenImages(turn: Turn): boolean {
  return [...turn.calls.values()].some(({ images, output }) => images.length === 0 && output.some(({ isImage }) => isImage === true));
}

function withImages(known: Turn["calls"], stored: Turn["calls"]): Turn["calls"] {
  const found = [...stored.values()].filter(({ images }) => images.length > 0);
  if (found.length === 0) return known;
  const calls = new Map(known);
  for (const { id, images } of found) {
    const call = calls.get(id);
    if (call !== undefined) calls.set(id, { ...call, images });
  }
  return calls;
}

const chats = new Map<string, ChatStore>();
/** The session that the page shows. */
export const currentChat = signal<ChatStore | undefined>(undefined);

export function startChats(): void {
  // The events of a turn may be faster than the response that names its run.
  effect(() => {
    if (outbox.value.length > 0) untracked(() => currentChat.value?.adoptMessages());
  });
  onEvents((events) => {
    const last = events.at(-1);
    if (last !== undefined && last.time > 0) noteServerTime(last.time);
    const chat = currentChat.peek();
    if (chat === undefined) return;
    if (events.some(({ kind }) => kind === "stream.started" || kind === "stream.reset")) {
      chat.reset();
      void chat.load();
    }
    const own = events.filter((event) => event.sessionId === chat.sessionId);
    if (own.some(({ kind }) => kind === "session.deleted")) chat.info.value = { ...chat.info.value, status: "missing" };
    chat.apply(own);
  });
}

/** Show a session; undefined for none. What is known of it is shown at once. */
export function openChat(sessionId: string | undefined): void {
  if (currentChat.peek()?.sessionId === sessionId) return;
  if (sessionId === undefined) {
    currentChat.value = undefined;
    watchSession(undefined);
    return;
  }
  const known = chats.get(sessionId) ?? new ChatStore(sessionId);
  chats.delete(sessionId);
  chats.set(sessionId, known);
  const [oldest] = chats.keys();
  if (chats.size > MAX_OPEN_CHATS && oldest !== undefined) chats.delete(oldest);
  currentChat.value = known;
  watchSession(sessionId);
  void known.load();
}

/** Runs that this page asked to stop, until the gateway confirms it. */
export const stoppingRuns = signal<ReadonlySet<string>>(new Set());

/** Abort a run; the gateway answers when it has stopped. */
export async function stopRun(runId: string): Promise<void> {
  if (stoppingRuns.value.has(runId)) return;
  stoppingRuns.value = new Set(stoppingRuns.value).add(runId);
  try {
    await request(`/api/runs/${runId}/abort`, { method: "POST", body: { reason: STOP_REASON } });
  } catch (error) {
    notify(`The run could not be stopped: ${error instanceof Error ? error.message : String(error)}`, { isError: true });
  } finally {
    const rest = new Set(stoppingRuns.value);
    rest.delete(runId);
    stoppingRuns.value = rest;
  }
}

/** Wait until a run without a session has ended, and return its text. Throws `ApiError`. */
export async function readReply(runId: string): Promise<string> {
  for (;;) {
    const run = await request<RunInfo>(`/api/runs/${runId}`);
    if (!run.isLive && run.result !== null) return run.result.error || run.result.text;
    await new Promise((resolve) => setTimeout(resolve, REPLY_POLL_MS));
  }
}

/** Send the result of a client tool. Throws `ApiError`. */
export async function sendClientResult(runId: string, callId: string, content: string, isError: boolean): Promise<void> {
  await request<RunInfo>(`/api/runs/${runId}/client-results`, { method: "POST", body: { results: [{ callId, content, isError }] } });
}
