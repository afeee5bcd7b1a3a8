/** Sending messages. A message stays visible until the session shows it. */
import { signal } from "@preact/signals";

import { ApiError, describeError, request } from "../api/client";
import type { AppEvent, StartedRun } from "../api/types";
import { type Attachment, type OutboxEntry, type QueueMode, applyToOutbox } from "../model/outbox";
import { onEvents } from "./live";

export const outbox = signal<readonly OutboxEntry[]>([]);

export interface NewMessage {
  sessionId: string | undefined;
  text: string;
  attachments: readonly Attachment[];
  mode: QueueMode | undefined;
  liveRunId: string;
  agentId?: string;
}

/** Events may be faster than the answer to the request: they are applied again when it is there. */
let recent: AppEvent[] = [];

export function startOutbox(): void {
  onEvents((events) => {
    const entries = outbox.peek();
    if (entries.length === 0) return;
    if (entries.some(({ state }) => state === "sending")) recent.push(...events.filter(({ kind }) => kind === "steered" || kind.startsWith("run.")));
    else recent = [];
    outbox.value = applyToOutbox(entries, events);
  });
}

/** Send a message. Return its run, or undefined if it failed: then its entry says why. */
export async function sendMessage(message: NewMessage): Promise<StartedRun | undefined> {
  const entry: OutboxEntry = {
    key: makeKey(),
    sessionId: message.sessionId ?? "",
    text: message.text,
    attachments: message.attachments,
    mode: message.mode,
    liveRunId: message.liveRunId,
    state: "sending",
    runId: "",
    problem: "",
  };
  outbox.value = [...outbox.value, entry];
  return deliver(entry, message.agentId);
}

/** Return a random key. `crypto.randomUUID` is missing over http, unless the gateway is on this machine. */
function makeKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Send a message again that failed, or whose fate is unknown. The gateway takes it once. */
export async function resendMessage(key: string): Promise<StartedRun | undefined> {
  const entry = outbox.value.find((known) => known.key === key);
  if (entry === undefined) return undefined;
  update(key, { state: "sending", problem: "" });
  return deliver(entry, undefined);
}

export function discardMessage(key: string): void {
  outbox.value = outbox.value.filter((entry) => entry.key !== key);
}

/** Forget the messages of a run whose answer the page shows in another way. */
export function discardRun(runId: string): void {
  outbox.value = outbox.value.filter((entry) => entry.runId !== runId);
}

/** The last delivery to each session. The next one waits for it, so that messages keep their order. */
const deliveries = new Map<string, Promise<StartedRun | undefined>>();

async function deliver(entry: OutboxEntry, agentId: string | undefined): Promise<StartedRun | undefined> {
  if (entry.sessionId === "") return post(entry, agentId);
  const earlier = deliveries.get(entry.sessionId) ?? Promise.resolve();
  const delivery = earlier.then(() => post(entry, agentId));
  deliveries.set(entry.sessionId, delivery);
  const run = await delivery;
  if (deliveries.get(entry.sessionId) === delivery) deliveries.delete(entry.sessionId);
  return run;
}

async function post(entry: OutboxEntry, agentId: string | undefined): Promise<StartedRun | undefined> {
  const body: Record<string, unknown> = { text: entry.text };
  if (entry.sessionId !== "") body["sessionId"] = entry.sessionId;
  if (entry.mode !== undefined) body["queueMode"] = entry.mode;
  if (agentId !== undefined) body["agentId"] = agentId;
  if (entry.attachments.length > 0) body["attachments"] = entry.attachments.map(({ mediaId }) => mediaId);
  try {
    const run = await request<StartedRun>("/api/runs", { method: "POST", body, headers: { "Idempotency-Key": entry.key } });
    update(entry.key, { runId: run.runId, sessionId: run.sessionId, state: run.runId !== entry.liveRunId && entry.liveRunId !== "" ? "queued" : "accepted" });
    outbox.value = applyToOutbox(outbox.value, recent);
    return run;
  } catch (error) {
    const isUncertain = error instanceof ApiError && error.isUncertain;
    update(entry.key, {
      state: isUncertain ? "uncertain" : "failed",
      problem: isUncertain ? "The connection broke. Send it again: the gateway takes it once." : describeError(error),
    });
    return undefined;
  }
}

function update(key: string, changes: Partial<OutboxEntry>): void {
  outbox.value = outbox.value.map((entry) => (entry.key === key ? { ...entry, ...changes } : entry));
}
