/** The state of a turn, from the events of its run. */
import type { AppEvent, Cut, Json, MediaInfo, ToolBytes, Usage } from "../api/types";
import {
  QUEUED,
  type Approval,
  type Call,
  type Cell,
  type Item,
  type Turn,
  emptyCall,
  isObject,
  readOutput,
  withInput,
  withProgramResult,
} from "./turn";

/** A program that writes more than this: the page keeps the end. */
const MAX_OUTPUTS = 500;
const UNREAD = "Accepted: the model reads this before its next step.";

/** Return the turn after these events of its run. Events that it has already seen change nothing. */
export function applyEvents(turn: Turn, events: readonly AppEvent[]): Turn {
  const draft = new TurnDraft(turn);
  for (const event of events) {
    if (event.sequence > draft.turn.lastSequence || event.sequence < 0) draft.apply(event);
  }
  return draft.finish();
}

/** A copy of a turn that changes while the events of one batch are applied. */
class TurnDraft {
  readonly turn: { -readonly [Key in keyof Turn]: Turn[Key] };
  readonly #items: Item[];
  readonly #calls: Map<string, Call>;
  /** Lists of nested calls that are already copies. */
  readonly #copies = new Map<string, string[]>();
  readonly #changed = new Set<string>();
  #data: AppEvent["data"] = {};
  #event: AppEvent | undefined;

  constructor(turn: Turn) {
    this.turn = { ...turn };
    this.#items = [...turn.items];
    this.#calls = new Map(turn.calls);
  }

  finish(): Turn {
    this.#renewParents();
    return { ...this.turn, items: this.#items, calls: this.#calls };
  }

  /** A call is another object if a call below it has changed: what shows it looks at nothing else. */
  #renewParents(): void {
    for (const id of this.#changed) {
      const parent = this.#calls.get(this.#calls.get(id)?.parentId ?? "");
      if (parent !== undefined && !this.#changed.has(parent.id)) this.#put({ ...parent });
    }
  }

  #put(call: Call): void {
    this.#calls.set(call.id, call);
    this.#changed.add(call.id);
  }

  apply(event: AppEvent): void {
    this.#event = event;
    this.#data = event.data;
    if (event.sequence >= 0) this.turn.lastSequence = event.sequence;
    const [family] = event.kind.split(".", 1);
    switch (family) {
      case "run":
        return this.#applyRun(event.kind, event.time);
      case "call":
        return this.#applyCall(event.kind, event.time);
      case "cell":
        return this.#applyCell(event.kind, event.time);
      case "approval":
        return this.#applyApproval(event.kind);
      case "client_call":
        return this.#applyClientCall(event.kind);
      case "input":
        return this.#applyInput(event.kind);
      default:
        return this.#applyOther(event.kind);
    }
  }

  #applyRun(kind: string, time: number): void {
    const turn = this.turn;
    switch (kind) {
      case "run.queued":
        turn.status = "queued";
        turn.activity = QUEUED;
        return;
      case "run.started":
        turn.status = "running";
        turn.activity = "";
        turn.startedAt = time;
        turn.model = this.#text("model");
        turn.command = this.#text("command");
        turn.trigger = this.#text("trigger");
        this.#takePrompt();
        return;
      case "run.waiting":
        turn.status = "waiting";
        return;
      case "run.resumed":
        turn.status = "running";
        if (this.#data["cause"] === "restart") this.#push("The gateway was restarted. The turn continues where it waited.", false);
        return;
      case "run.completed":
      case "run.failed":
      case "run.aborted":
      case "run.interrupted":
        this.#endRun(kind.slice("run.".length) as Turn["status"], time);
    }
  }

  #takePrompt(): void {
    const text = this.#data["prompt"] ?? this.#data["text"];
    if (this.turn.prompt === undefined && typeof text === "string") this.turn.prompt = { text, images: [], media: [] };
  }

  #endRun(status: Turn["status"], time: number): void {
    const turn = this.turn;
    turn.status = status;
    turn.endedAt = time;
    turn.activity = "";
    turn.error = this.#text("error");
    turn.model = this.#text("model") || turn.model;
    turn.usage = (this.#data["usage"] as Usage | null | undefined) ?? turn.usage;
    turn.toolBytes = (this.#data["toolBytes"] as ToolBytes | null | undefined) ?? turn.toolBytes;
    this.#closeGrowing();
    this.#markSteered("The run ended before the model read this.");
    for (const call of this.#calls.values()) {
      if (call.status === "running" || call.status === "waiting" || call.status === "suspended") {
        this.#put({ ...call, status: "aborted", endedAt: call.endedAt || time });
      }
    }
    const reply = this.#text("text");
    // A command answers without a model, so there was no delta.
    if (reply !== "" && !this.#items.some((item) => item.kind === "text" || item.kind === "sent")) this.#addText(reply, false);
  }

  #applyCall(kind: string, time: number): void {
    const id = this.#text("toolCallId");
    const call = this.#calls.get(id) ?? emptyCall(id, this.#text("parentToolCallId"));
    switch (kind) {
      case "call.started": {
        const started = { ...call, toolId: this.#text("toolId"), source: this.#text("source"), startedAt: time, status: "running" as const };
        this.#put(withInput(started, this.#text("toolName"), this.#data["input"] ?? null));
        this.#place(id, call.parentId);
        return;
      }
      case "call.changed":
        this.#put(withInput({ ...call, code: "" }, call.toolName, this.#data["input"] ?? null));
        return;
      case "call.updated":
        this.#put({ ...call, progress: describeProgress(this.#data["update"] ?? null) });
        return;
      case "call.ended":
        this.#put(this.#endCall(call, time));
    }
  }

  #endCall(call: Call, time: number): Call {
    const isCompleted = this.#text("outcome") === "completed";
    const ended: Call = {
      ...call,
      status: isCompleted ? "completed" : this.#text("errorCode") === "aborted" ? "aborted" : "failed",
      result: this.#data["result"] ?? null,
      resultCut: (this.#data["resultCut"] as Cut | null | undefined) ?? null,
      error: this.#text("error"),
      errorCode: this.#text("errorCode"),
      endedAt: time,
    };
    return isCompleted && (call.isProgram || call.toolName === "wait") ? withProgramResult(ended, ended.result) : ended;
  }

  /** Put a call below its parent, or into the text at this place. */
  #place(id: string, parentId: string): void {
    const parent = this.#calls.get(parentId);
    if (parent === undefined) {
      if (this.#items.some((item) => item.kind === "call" && item.callId === id)) return;
      this.#closeGrowing();
      this.#items.push({ kind: "call", id: `call:${id}`, callId: id });
      return;
    }
    let children = this.#copies.get(parentId);
    if (children === undefined) {
      children = [...parent.children];
      this.#copies.set(parentId, children);
    }
    if (children.at(-1) !== id) children.push(id);
    this.#put({ ...parent, children });
  }

  #applyCell(kind: string, time: number): void {
    const id = this.#text("toolCallId");
    const call = this.#calls.get(id);
    if (call === undefined) return;
    const cell: Cell = call.cell ?? { cellId: this.#text("runId"), status: "running", reason: "", snapshotBytes: 0, suspensions: 0, isDurable: false };
    switch (kind) {
      case "cell.started":
        this.#put({ ...call, isProgram: true, cell });
        return;
      case "cell.output": {
        const output = readOutput(this.#data["text"] === undefined ? { value: this.#data["result"] ?? null } : { text: this.#data["text"] });
        this.#put({ ...call, output: [...call.output, output].slice(-MAX_OUTPUTS) });
        return;
      }
      case "cell.suspended":
        this.#put({
          ...call,
          status: call.status === "running" ? "suspended" : call.status,
          cell: {
            ...cell,
            status: "suspended",
            reason: this.#text("reason"),
            snapshotBytes: Number(this.#data["snapshotBytes"] ?? 0),
            suspensions: cell.suspensions + 1,
            isDurable: this.#data["isDurable"] === true,
          },
        });
        return;
      case "cell.resumed":
        this.#put({ ...call, status: "running", cell: { ...cell, status: "running", reason: this.#text("cause") } });
        return;
      case "cell.ended":
        this.#endCell(call, cell, time);
    }
  }

  #endCell(call: Call, cell: Cell, time: number): void {
    const status = this.#text("status") as Cell["status"];
    const shown = status === "completed" || status === "failed" ? status : "aborted";
    const error = status === "completed" || call.error !== "" ? call.error : this.#text("reason");
    const ended = { ...cell, status, reason: this.#text("reason") };
    this.#put({ ...call, status: shown, error, cell: ended, endedAt: time });
  }

  #applyApproval(kind: string): void {
    const id = this.#text("toolCallId");
    const call = this.#calls.get(id);
    if (call === undefined) return;
    const approvalId = this.#text("approvalId");
    if (kind === "approval.requested") {
      const approval: Approval = {
        approvalId,
        reason: this.#text("reason"),
        input: this.#data["input"] ?? null,
        expiresAt: Number(this.#data["expiresAt"] ?? 0),
        answer: "",
        how: "",
      };
      const others = call.approvals.filter((known) => known.approvalId !== approvalId);
      this.#put({ ...call, status: "waiting", approvals: [...others, approval] });
      return;
    }
    const answer = this.#text("answer");
    const approvals = call.approvals.map((known) =>
      known.approvalId === approvalId && known.answer === "" ? { ...known, answer, how: this.#text("how") || this.#text("reason") } : known,
    );
    const status = call.status === "waiting" ? "running" : call.status;
    this.#put({ ...call, approvals, status });
  }

  #applyClientCall(kind: string): void {
    const callId = this.#text("callId");
    const call = this.#calls.get(callId) ?? this.#findClientCall(callId) ?? emptyCall(callId, this.#text("parentToolCallId"));
    if (kind === "client_call.requested") {
      const args = this.#data["arguments"] ?? null;
      const isNew = !this.#calls.has(call.id);
      this.#put({
        ...call,
        toolName: call.toolName || this.#text("name"),
        status: "waiting",
        clientRequest: { callId, arguments: args, how: "" },
      });
      if (isNew) this.#place(call.id, call.parentId);
    } else if (call.clientRequest !== undefined) {
      const how = this.#text("how");
      const status = call.status === "waiting" ? "running" : call.status;
      this.#put({ ...call, status, clientRequest: { ...call.clientRequest, how } });
    }
  }

  #findClientCall(callId: string): Call | undefined {
    const toolCallId = this.#text("toolCallId");
    if (toolCallId !== "") return this.#calls.get(toolCallId);
    for (const call of this.#calls.values()) if (call.clientRequest?.callId === callId) return call;
    return undefined;
  }

  #applyInput(kind: string): void {
    const inputId = this.#text("inputId");
    if (kind === "input.requested") {
      this.#closeGrowing();
      const question = {
        inputId,
        text: this.#text("text"),
        questions: this.#data["questions"] ?? null,
        expiresAt: Number(this.#data["expiresAt"] ?? 0),
        how: "",
      };
      this.#items.push({ kind: "question", id: `input:${inputId}`, question });
      return;
    }
    const index = this.#items.findIndex((item) => item.kind === "question" && item.question.inputId === inputId);
    const item = this.#items[index];
    if (item?.kind === "question") this.#items[index] = { ...item, question: { ...item.question, how: this.#text("how") } };
  }

  #applyOther(kind: string): void {
    switch (kind) {
      case "text.delta":
        return this.#addText(this.#text("text"), true);
      case "thinking.delta":
        return this.#addThinking(this.#text("text"));
      case "model.started":
        this.turn.model = this.#text("model");
        this.turn.activity = "";
        this.#markSteered("");
        return;
      case "message.completed":
        return this.#completeMessage();
      case "model.answered":
        // A stored run has no deltas.
        this.#closeGrowing();
        if (this.#text("text") !== "") this.#addText(this.#text("text"), false);
        return;
      case "steered":
        return this.#addSteered();
      case "message.sent":
        this.#closeGrowing();
        this.#items.push({ kind: "sent", id: this.#id(), text: this.#text("text") });
        return;
      case "media.added":
        this.#items.push({ kind: "media", id: this.#id(), media: this.#data as unknown as MediaInfo });
        return;
      case "retry":
        return this.#noteRetry();
      case "events.dropped":
        this.turn.dropped += Number(this.#data["count"] ?? this.#data["dropped"] ?? 1);
        return;
      default:
        return this.#addNotice(kind);
    }
  }

  #completeMessage(): void {
    this.#closeGrowing();
    const text = this.#text("text");
    const last = this.#items.at(-1);
    if (text !== "" && (last?.kind !== "text" || !text.endsWith(last.text.slice(-50)))) {
      if (!this.#items.some((item) => item.kind === "text" && item.text === text)) this.#addText(text, false);
    }
    const toolCalls = this.#data["toolCalls"];
    if (!Array.isArray(toolCalls)) return;
    for (const each of toolCalls) {
      if (!isObject(each)) continue;
      const id = String(each["callId"]);
      const known = this.#calls.get(id) ?? emptyCall(id, "");
      const startedAt = known.startedAt || (this.#event?.time ?? 0);
      const input = known.input ?? parseArguments(String(each["arguments"] ?? ""));
      this.#put(withInput({ ...known, startedAt }, String(each["name"]), input));
      this.#place(id, "");
    }
  }

  #addText(text: string, isGrowing: boolean): void {
    this.#closeUnless("text");
    const last = this.#items.at(-1);
    if (last?.kind === "text" && last.isGrowing) this.#items[this.#items.length - 1] = { ...last, text: last.text + text };
    else this.#items.push({ kind: "text", id: this.#id(), text, isGrowing, sequence: -1, cut: null });
  }

  #addThinking(text: string): void {
    this.#closeUnless("thinking");
    const last = this.#items.at(-1);
    if (last?.kind === "thinking" && last.isGrowing) this.#items[this.#items.length - 1] = { ...last, text: last.text + text };
    else this.#items.push({ kind: "thinking", id: this.#id(), text, isGrowing: true });
  }

  #addSteered(): void {
    this.#closeGrowing();
    let note = UNREAD;
    if (this.#data["dropped"] !== undefined && this.#data["dropped"] !== false) note = "The queue was full: this message was dropped.";
    else if (this.#data["followupRunId"] !== undefined) note = "This message gets a turn of its own.";
    const text = this.#text("text");
    if (text !== "") this.#items.push({ kind: "steered", id: this.#id(), text, note });
  }

  /** Replace the note at messages that the model has not read yet. */
  #markSteered(note: string): void {
    for (const [index, item] of this.#items.entries()) {
      if (item.kind === "steered" && item.note === UNREAD) this.#items[index] = { ...item, note };
    }
  }

  #noteRetry(): void {
    const problem = this.#text("problem");
    const failedModel = this.#text("failedModel");
    if (failedModel !== "") this.#push(`${failedModel} failed, ${this.#text("model")} continues: ${problem}`, true);
    else this.turn.activity = `Attempt ${String(this.#data["attempt"] ?? "")} failed, trying again: ${problem}`;
  }

  #addNotice(kind: string): void {
    switch (kind) {
      case "server.unavailable":
        return this.#push(`The tools of ${this.#text("server")} are missing: ${this.#text("problem")}`, true);
      case "tool.unavailable":
        return this.#push(`${this.#text("toolId")} cannot be used: ${this.#text("problem")}`, true);
      case "context.failed":
        return this.#push(`The context engine ${this.#text("engine")} failed: ${this.#text("problem")}`, true);
      case "compaction.started":
        this.turn.activity = "Summarising older messages";
        return;
      case "compaction.ended": {
        this.turn.activity = "";
        const error = this.#text("error");
        return this.#push(error === "" ? "Older messages were summarised." : `Older messages could not be summarised: ${error}`, error !== "");
      }
    }
  }

  #push(text: string, isProblem: boolean): void {
    this.#items.push({ kind: "notice", id: this.#id(), text, isProblem });
  }

  /** End the growing text, unless it is of this kind. */
  #closeUnless(kind: "text" | "thinking"): void {
    const last = this.#items.at(-1);
    if (last !== undefined && last.kind !== kind) this.#closeGrowing();
  }

  #closeGrowing(): void {
    for (let index = this.#items.length - 1; index >= 0; index -= 1) {
      const item = this.#items[index];
      if (item === undefined || (item.kind !== "text" && item.kind !== "thinking")) continue;
      if (!item.isGrowing) return;
      this.#items[index] = { ...item, isGrowing: false };
    }
  }

  #id(): string {
    return `event:${this.#event?.sequence ?? 0}:${this.#items.length}`;
  }

  #text(name: string): string {
    const value = this.#data[name];
    return typeof value === "string" ? value : "";
  }
}

export function parseArguments(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

function describeProgress(update: Json): string {
  if (typeof update === "string") return update;
  if (!isObject(update)) return JSON.stringify(update);
  const { message, progress, total } = update;
  const share = typeof progress === "number" ? `${progress}${typeof total === "number" ? ` of ${total}` : ""}` : "";
  const text = typeof message === "string" ? message : "";
  return [share, text].filter((part) => part !== "").join(": ") || JSON.stringify(update);
}
