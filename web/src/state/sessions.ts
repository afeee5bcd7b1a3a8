/** The list of sessions. The event stream keeps it up to date. */
import { computed, signal } from "@preact/signals";

import { request } from "../api/client";
import type { AppEvent, Json, SessionInfo, SessionPage, SessionState } from "../api/types";
import { mergeSessions } from "../model/session_list";
import { isObject } from "../model/turn";
import { onEvents } from "./live";

const PAGE_SIZE = 50;

export interface SessionList {
  status: "loading" | "ready" | "failed";
  byId: ReadonlyMap<string, SessionInfo>;
  nextCursor: string | null;
  error: unknown;
}

export const sessionList = signal<SessionList>({ status: "loading", byId: new Map(), nextCursor: null, error: undefined });

export const sessions = computed(() => [...sessionList.value.byId.values()].sort((a, b) => b.updatedAt - a.updatedAt));

/** What sessions do now; the list itself does not say it. */
let states: ReadonlyMap<string, SessionState> = new Map();

export function startSessions(): void {
  onEvents((events) => {
    for (const event of events) {
      if (event.kind !== "stream.started" && event.kind !== "stream.reset") continue;
      states = readStates(event.data["liveRuns"]);
      void loadSessions();
    }
    const changed = events.filter(({ kind }) => kind.startsWith("session."));
    if (changed.length > 0) applyEvents(changed);
  });
}

export async function loadSessions(): Promise<void> {
  await loadPage(undefined);
}

export async function loadMoreSessions(): Promise<void> {
  const { nextCursor } = sessionList.peek();
  if (nextCursor !== null) await loadPage(nextCursor);
}

export async function renameSession(id: string, title: string): Promise<void> {
  await request(`/api/sessions/${id}`, { method: "PATCH", body: { title } });
  const known = sessionList.value.byId.get(id);
  if (known !== undefined) applySession({ ...known, title });
}

/** Delete a session; with `abort`, end its run first. */
export async function deleteSession(id: string, options: { abort: boolean }): Promise<void> {
  await request(`/api/sessions/${id}`, { method: "DELETE", query: { abort: options.abort ? true : undefined } });
  removeSession(id);
}

/** Copy a session with its turns up to and with `runId`; return the id of the copy. */
export async function forkSession(id: string, runId?: string): Promise<string> {
  const body = runId === undefined ? {} : { runId };
  const answer = await request<{ id?: string; session?: SessionInfo; sessionId?: string }>(`/api/sessions/${id}/fork`, { method: "POST", body });
  if (answer.session !== undefined) applySession(answer.session);
  return answer.session?.id ?? answer.sessionId ?? answer.id ?? "";
}

async function loadPage(before: string | undefined): Promise<void> {
  try {
    const page = await request<SessionPage>("/api/sessions", { query: { limit: PAGE_SIZE, before } });
    const listed = page.sessions.map((session) => ({ ...session, state: session.state ?? states.get(session.id) ?? "idle" }));
    sessionList.value = {
      status: "ready",
      byId: mergeSessions(before === undefined ? new Map() : sessionList.value.byId, listed),
      nextCursor: page.nextCursor ?? null,
      error: undefined,
    };
  } catch (error) {
    const { byId, nextCursor } = sessionList.value;
    sessionList.value = { status: byId.size > 0 ? "ready" : "failed", byId, nextCursor, error };
  }
}

function applyEvents(events: AppEvent[]): void {
  for (const event of events) {
    if (event.kind === "session.deleted") removeSession(event.sessionId);
    else applySession(event.data as unknown as SessionInfo);
    const state = event.data["state"];
    if (typeof state === "string") states = new Map(states).set(event.sessionId, state as SessionState);
  }
}

function readStates(liveRuns: Json | undefined): Map<string, SessionState> {
  const found = new Map<string, SessionState>();
  for (const run of Array.isArray(liveRuns) ? liveRuns : []) {
    if (!isObject(run)) continue;
    const sessionId = String(run["sessionId"]);
    // A session has one run that works, and others that are queued.
    if (run["state"] !== "queued" || !found.has(sessionId)) found.set(sessionId, run["state"] as SessionState);
  }
  return found;
}

function applySession(session: SessionInfo): void {
  sessionList.value = { ...sessionList.value, byId: mergeSessions(sessionList.value.byId, [session]) };
}

function removeSession(id: string): void {
  const byId = new Map(sessionList.value.byId);
  byId.delete(id);
  sessionList.value = { ...sessionList.value, byId };
}
