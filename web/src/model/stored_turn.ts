/** Turns from the stored messages and calls of a session. */
import type { Json, SessionDocument, StoredCall, StoredMessage, StoredTurn } from "../api/types";
import { parseArguments } from "./live_turn";
import { type Approval, type Call, type Item, type Turn, emptyCall, emptyTurn, readJsonText, withInput, withProgramResult } from "./turn";

/** Return the turns of a page of a session, oldest first. */
export function turnsFromDocument(document: SessionDocument): Turn[] {
  const messages = new Map<string, StoredMessage[]>();
  for (const message of document.messages) {
    const known = messages.get(message.runId);
    if (known === undefined) messages.set(message.runId, [message]);
    else known.push(message);
  }
  return document.turns.map((turn) => turnFromStored(turn, messages.get(turn.runId) ?? []));
}

function turnFromStored(stored: StoredTurn, messages: readonly StoredMessage[]): Turn {
  const calls = new Map<string, Call>();
  for (const call of stored.calls) addCall(calls, call, "");
  const prompts = messages.filter((message) => message.role === "user");
  const first = prompts[0];
  const turn: Turn = {
    ...emptyTurn(stored.runId),
    status: stored.status,
    prompt: { text: first?.text ?? stored.prompt, images: (first?.images ?? []).map(({ url }) => url), media: [] },
    command: stored.surface === "command" ? stored.prompt : "",
    trigger: stored.trigger ?? "",
    model: stored.model,
    startedAt: stored.startedAt,
    endedAt: stored.endedAt ?? 0,
    usage: stored.usage,
    toolBytes: stored.toolBytes ?? null,
    error: stored.error,
    hasMoreCalls: stored.hasMoreCalls,
    calls,
  };
  const items: Item[] = [];
  for (const message of messages) if (message !== first) items.push(...itemsOfMessage(message, calls));
  const shown = new Set(items.map((item) => (item.kind === "call" ? item.callId : "")));
  for (const call of stored.calls) {
    if (!shown.has(call.toolCallId)) items.push({ kind: "call", id: `call:${call.toolCallId}`, callId: call.toolCallId });
  }
  for (const [index, sent] of (stored.sent ?? []).entries()) items.push({ kind: "sent", id: `sent:${index}`, text: sent });
  if (stored.reply) items.push({ kind: "text", id: "reply", text: stored.reply, isGrowing: false, sequence: -1, cut: null });
  for (const media of stored.media ?? []) items.push({ kind: "media", id: `media:${media.id}`, media });
  return { ...turn, items };
}

function itemsOfMessage(message: StoredMessage, calls: Map<string, Call>): Item[] {
  const id = `message:${message.sequence}`;
  if (message.role === "user") return [{ kind: "steered", id, text: message.text ?? "", note: "" }];
  if (message.role === "tool") {
    completeCall(message, calls);
    return [];
  }
  if (message.role !== "assistant") return [];
  const items: Item[] = [];
  if (message.thinking) items.push({ kind: "thinking", id: `${id}:thinking`, text: message.thinking, isGrowing: false });
  if (message.text) items.push({ kind: "text", id, text: message.text, isGrowing: false, sequence: message.sequence, cut: message.contentCut ?? null });
  for (const toolCall of message.toolCalls ?? []) {
    const known = calls.get(toolCall.callId) ?? { ...emptyCall(toolCall.callId, ""), status: "aborted" as const };
    const cut = toolCall.argumentsCut ?? null;
    const input = cut === null ? parseArguments(toolCall.arguments) : readCutProgram(toolCall.arguments);
    calls.set(toolCall.callId, { ...withInput(known, toolCall.name, input), inputCut: cut });
    items.push({ kind: "call", id: `call:${toolCall.callId}`, callId: toolCall.callId });
  }
  return items;
}

/** Return the start of the program in arguments that are cut. */
function readCutProgram(text: string): Json {
  // The end of the text may be in the middle of an escape.
  const code = /"code":\s*"((?:[^"\\]|\\u[\da-fA-F]{4}|\\[^u])*)/.exec(text)?.[1];
  const language = /"language":\s*"(\w+)"/.exec(text)?.[1];
  if (code === undefined) return text;
  return { code: readJsonText(code), ...(language === undefined ? {} : { language }) };
}

/** Use the result that the model saw for a call whose record is missing. */
function completeCall(message: StoredMessage, calls: Map<string, Call>): void {
  const found = calls.get(message.callId ?? "");
  const images = (message.images ?? []).map(({ url }) => url);
  const call = found === undefined || images.length === 0 ? found : { ...found, images };
  if (call !== undefined) calls.set(call.id, call);
  if (call === undefined || call.startedAt !== 0 || call.result !== null) return;
  const result = parseArguments(message.content ?? "");
  const ended: Call = { ...call, status: message.isError === true ? "failed" : "completed", result, resultCut: message.contentCut ?? null };
  calls.set(call.id, call.isProgram ? withProgramResult(ended, result) : ended);
}

function addCall(calls: Map<string, Call>, stored: StoredCall, parentId: string): void {
  const ended = stored.endedAt ?? 0;
  const call: Call = {
    ...emptyCall(stored.toolCallId, parentId),
    toolId: stored.toolId,
    source: stored.source,
    status: stored.outcome === "completed" ? "completed" : stored.outcome === "failed" ? "failed" : "aborted",
    result: stored.result,
    inputCut: stored.inputCut ?? null,
    resultCut: stored.resultCut ?? null,
    error: stored.error,
    errorCode: stored.errorCode,
    startedAt: stored.startedAt ?? 0,
    endedAt: ended,
    children: stored.children.map((child) => child.toolCallId),
    approvals: stored.approvals.map(readApproval),
  };
  const withProgram = withInput(call, stored.toolName, stored.input);
  calls.set(call.id, withProgram.isProgram && call.status === "completed" ? withProgramResult(withProgram, stored.result) : withProgram);
  for (const child of stored.children) addCall(calls, child, stored.toolCallId);
}

function readApproval(stored: StoredCall["approvals"][number]): Approval {
  return {
    approvalId: stored.approvalId ?? "",
    reason: "",
    input: null,
    expiresAt: 0,
    answer: stored.answer ?? "given_up",
    how: stored.how ?? stored.reason ?? "",
  };
}
