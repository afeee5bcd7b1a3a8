/** Messages that this page has sent, with their state. */
import type { AppEvent } from "../api/types";

export type QueueMode = "steer" | "followup" | "collect";

export type OutboxState =
  /** On its way. */
  | "sending"
  /** The gateway has it; it belongs to a turn that runs or that will run. */
  | "accepted"
  /** It waits for the running turn to end. */
  | "queued"
  /** The model has it, or its turn has started. */
  | "consumed"
  /** The connection broke: nobody knows whether the gateway has it. Sending it again is safe. */
  | "uncertain"
  | "failed";

export interface Attachment {
  mediaId: string;
  name: string;
  type: string;
  bytes: number;
}

export interface OutboxEntry {
  /** Sent as idempotency key, so that the gateway takes the message once. */
  key: string;
  sessionId: string;
  text: string;
  attachments: readonly Attachment[];
  mode: QueueMode | undefined;
  /** The run that was going on when it was sent; empty if none was. */
  liveRunId: string;
  state: OutboxState;
  runId: string;
  problem: string;
}

/** Return the entries after these events. A message whose turn has started is gone: the turn shows it. */
export function applyToOutbox(entries: readonly OutboxEntry[], events: readonly AppEvent[]): readonly OutboxEntry[] {
  let current = entries;
  for (const event of events) {
    if (current.length === 0) return current;
    if (event.runId === "" || !current.some((entry) => entry.runId === event.runId)) continue;
    current = applyEvent(current, event);
  }
  return current;
}

/** Tell whether a message became part of a run that was going on already. */
export function isSteering(entry: OutboxEntry): boolean {
  return entry.mode === "steer" && entry.runId !== "" && entry.runId === entry.liveRunId;
}

function applyEvent(entries: readonly OutboxEntry[], event: AppEvent): readonly OutboxEntry[] {
  const isOfRun = (entry: OutboxEntry) => entry.runId === event.runId;
  switch (event.kind) {
    case "run.queued":
      return entries.map((entry) => (isOfRun(entry) && entry.state === "accepted" ? { ...entry, state: "queued" } : entry));
    case "run.started":
      return entries.filter((entry) => !isOfRun(entry) || isSteering(entry));
    case "steered": {
      const text = String(event.data["text"] ?? "");
      const index = entries.findIndex((entry) => isOfRun(entry) && text.includes(entry.text));
      if (index < 0) return entries;
      const followup = event.data["followupRunId"];
      if (typeof followup === "string") {
        return entries.map((entry, at) => (at === index ? { ...entry, runId: followup, state: "queued" } : entry));
      }
      return entries.filter((_, at) => at !== index);
    }
    case "run.completed":
    case "run.failed":
    case "run.aborted":
      // The session has it now; its turn, if it gets one, has another id.
      return entries.filter((entry) => !isOfRun(entry));
    default:
      return entries;
  }
}
