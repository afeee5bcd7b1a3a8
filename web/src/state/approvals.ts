/** Open approval requests of all sessions. The event stream keeps them up to date. */
import { computed, signal } from "@preact/signals";

import { describeError, request } from "../api/client";
import type { AppEvent, ApprovalRequest, Json } from "../api/types";
import { announce, notify } from "./notices";
import { onEvents } from "./live";

export type ApprovalAnswer =
  | { answer: "allow-once" }
  | { answer: "allow-always" }
  | { answer: "deny"; reason?: string }
  | { answer: "edit"; input: Json };

const byId = signal<ReadonlyMap<string, ApprovalRequest>>(new Map());

export const openApprovals = computed(() => [...byId.value.values()].sort((a, b) => a.expiresAt - b.expiresAt));

export function startApprovals(): void {
  onEvents((events) => {
    if (events.some(({ kind }) => kind === "stream.started" || kind === "stream.reset")) void loadApprovals();
    for (const event of events) if (event.kind.startsWith("approval.")) applyEvent(event);
  });
}

async function loadApprovals(): Promise<void> {
  try {
    const { pending } = await request<{ pending: ApprovalRequest[] }>("/api/approvals");
    byId.value = new Map(pending.map((approval) => [approval.approvalId, approval]));
  } catch (error) {
    notify(`Approval requests could not be loaded: ${describeError(error)}`, { isError: true });
  }
}

/** Return the input that the call is going to be made with: whole, and with its secrets. Throws `ApiError`. */
export async function loadApprovalInput(approvalId: string): Promise<Json> {
  return (await request<{ input: Json }>(`/api/approvals/${approvalId}/input`)).input;
}

/** Answer a request. The event stream then tells all pages. Throws `ApiError`. */
export async function answerApproval(approvalId: string, answer: ApprovalAnswer): Promise<void> {
  await request(`/api/approvals/${approvalId}`, { method: "POST", body: answer });
  removeApproval(approvalId);
  announce(answer.answer === "deny" ? "Denied" : "Allowed");
}

function applyEvent(event: AppEvent): void {
  const approvalId = String(event.data["approvalId"] ?? "");
  if (approvalId === "") return;
  if (event.kind === "approval.answered") return removeApproval(approvalId);
  const approval = {
    agentId: "",
    createdAt: event.time,
    parentToolCallId: null,
    ...event.data,
    sessionId: event.sessionId,
    runId: event.runId,
  } as unknown as ApprovalRequest;
  byId.value = new Map(byId.value).set(approvalId, approval);
  announce(`${approval.toolName} needs your approval`);
}

function removeApproval(approvalId: string): void {
  if (!byId.value.has(approvalId)) return;
  const rest = new Map(byId.value);
  rest.delete(approvalId);
  byId.value = rest;
}
