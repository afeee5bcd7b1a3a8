/** The spans of a run, made from its events: live ones and those of a stored trajectory. */
import type { Json } from "../api/types";
import { summarize } from "../model/format";

export type SpanKind = "model" | "cell" | "call" | "approval" | "wait";
export type SpanState = "running" | "completed" | "failed" | "waiting" | "aborted";

/** One bar of the timeline. Times are seconds since 1970. */
export interface Span {
  id: string;
  kind: SpanKind;
  parentId: string;
  name: string;
  detail: string;
  startedAt: number;
  /** Null while it runs. */
  endedAt: number | null;
  state: SpanState;
  /** The call that a person finds in the chat; empty for others. */
  toolCallId: string;
  /** Of a cell: its id, for a replay. */
  cellId?: string;
  input?: Json;
  result?: Json;
  error?: string;
}

export interface RunEvent {
  kind: string;
  time: number;
  sequence: number;
  data: { [key: string]: Json };
}

export interface Row {
  span: Span;
  level: number;
  hasChildren: boolean;
}

const ENDINGS: Record<string, SpanState> = {
  "run.completed": "completed",
  "run.failed": "failed",
  "run.aborted": "aborted",
  "run.interrupted": "aborted",
};

/** The timeline of one run. `add` takes its events in order; it changes the object. */
export class Timeline {
  readonly spans: Span[] = [];
  sessionId = "";
  agentId = "";
  model = "";
  state: SpanState = "running";
  startedAt = 0;
  endedAt: number | null = null;
  error = "";
  inputTokens = 0;
  outputTokens = 0;
  /** Events that the log of a long run no longer has. */
  dropped = 0;
  eventCount = 0;
  lastTime = 0;

  readonly #byId = new Map<string, Span>();
  readonly #children = new Map<string, Span[]>();
  #modelCalls = 0;
  #waits = 0;

  get isEnded(): boolean {
    return this.endedAt !== null;
  }

  add(event: RunEvent): void {
    this.eventCount += 1;
    if (event.kind === "events.dropped") this.dropped += asNumber(event.data["count"] ?? event.data["dropped"] ?? 0);
    if (typeof event.time !== "number" || Number.isNaN(event.time)) return;
    if (this.startedAt === 0) this.startedAt = event.time;
    this.lastTime = Math.max(this.lastTime, event.time);
    const ending = ENDINGS[event.kind];
    if (ending !== undefined) this.#end(ending, event);
    else this.#handlers[event.kind]?.(event.data, event.time);
  }

  /** Return the spans as rows of a tree, children below their parents, in the order of their starts. */
  rows(matches: (span: Span) => boolean, collapsed: ReadonlySet<string>): Row[] {
    const rows: Row[] = [];
    const visit = (span: Span, level: number): void => {
      const children = this.#children.get(span.id) ?? [];
      const isShown = matches(span);
      if (isShown) rows.push({ span, level, hasChildren: children.length > 0 });
      if (isShown && collapsed.has(span.id)) return;
      for (const child of children) visit(child, isShown ? level + 1 : level);
    };
    for (const span of this.#children.get("") ?? []) visit(span, 1);
    return rows;
  }

  readonly #handlers: Record<string, (data: RunEvent["data"], time: number) => void> = {
    "run.started": (data) => {
      this.sessionId = asText(data["sessionId"]);
      this.agentId = asText(data["agentId"]);
      this.model = asText(data["model"]) || this.model;
    },
    "run.waiting": (_, time) => this.#startWait("Run waits", "for an answer", "", time),
    "run.resumed": (data, time) => this.#resumeRun(data["cause"] === "restart", time),
    "cell.started": (data) => {
      const span = this.#byId.get(asText(data["toolCallId"]));
      if (span !== undefined) span.cellId = asText(data["runId"]);
    },
    "model.started": (data, time) => this.#startModel(data, time),
    "model.requested": (data, time) => this.#startModel(data, time),
    "message.completed": (data, time) => this.#endModel(data, time),
    "model.answered": (data, time) => this.#endModel(data, time),
    "call.started": (data, time) => this.#startCall(data, time),
    "call.changed": (data) => {
      const span = this.#byId.get(asText(data["toolCallId"]));
      if (span !== undefined && data["input"] !== undefined) span.input = data["input"];
    },
    "call.ended": (data, time) => this.#endCall(data, time),
    "cell.suspended": (data, time) => {
      const bytes = asNumber(data["snapshotBytes"]);
      const isDurable = data["isDurable"] === true;
      const detail = [asText(data["reason"]), bytes > 0 ? `snapshot of ${bytes.toLocaleString("en")} bytes` : "", isDurable ? "survives a restart" : ""];
      this.#startWait("Suspended", detail.filter(Boolean).join(", "), asText(data["toolCallId"]), time);
    },
    "cell.resumed": (data, time) => this.#closeLast("wait", asText(data["toolCallId"]), time),
    "cell.ended": (data, time) => {
      const id = asText(data["toolCallId"]);
      this.#closeLast("wait", id, time);
      const span = this.#byId.get(id);
      const status = asText(data["status"]);
      if (span !== undefined && status !== "completed") span.state = status === "aborted" ? "aborted" : "failed";
    },
    "approval.requested": (data, time) => {
      const call = asText(data["toolCallId"]);
      const reason = asText(data["reason"]);
      const id = `approval:${call}`;
      this.#start({ id, kind: "approval", parentId: call, name: "Approval", detail: reason, startedAt: time, endedAt: null, state: "waiting", toolCallId: call });
    },
    "approval.answered": (data, time) => {
      const span = this.#byId.get(`approval:${asText(data["toolCallId"])}`);
      if (span === undefined) return;
      const answer = asText(data["answer"]);
      span.endedAt = time;
      span.state = answer === "allow" ? "completed" : "failed";
      span.detail = [span.detail, `${answer} ${asText(data["how"])}`.trim(), asText(data["reason"])].filter(Boolean).join(" · ");
    },
    "client_call.requested": (data, time) => this.#startOutside("client", data["callId"], "Client tool", asText(data["name"]), time),
    "client_call.answered": (data, time) => this.#endOutside("client", data["callId"], asText(data["how"]), time),
    "input.requested": (data, time) => this.#startOutside("input", data["inputId"], "Question", asText(data["text"]), time),
    "input.answered": (data, time) => this.#endOutside("input", data["inputId"], asText(data["how"]), time),
    "compaction.started": (_, time) => this.#startWait("Compaction", "older messages become a summary", "", time),
    "compaction.ended": (_, time) => this.#closeLast("wait", "", time),
    "turn.ended": (data, time) => this.#endTurn(data, time),
  };

  #resumeRun(isRestart: boolean, time: number): void {
    const wait = this.spans.findLast((span) => span.kind === "wait" && span.parentId === "" && span.endedAt === null);
    if (wait !== undefined && isRestart) wait.detail += " · continued after a restart of the gateway";
    this.#closeLast("wait", "", time);
  }

  #startModel(data: RunEvent["data"], time: number): void {
    this.#modelCalls += 1;
    const model = asText(data["model"]);
    this.model = model || this.model;
    const id = `model:${this.#modelCalls}`;
    this.#start({ id, kind: "model", parentId: "", name: `Model call ${this.#modelCalls}`, detail: model, startedAt: time, endedAt: null, state: "running", toolCallId: "", input: data });
  }

  #endModel(data: RunEvent["data"], time: number): void {
    const span = this.#byId.get(`model:${this.#modelCalls}`);
    if (span === undefined || span.endedAt !== null) return;
    span.endedAt = time;
    span.state = "completed";
    span.result = data;
    const usage = asObject(data["usage"]);
    const output = asNumber(usage["outputTokens"]);
    this.inputTokens += asNumber(usage["inputTokens"]);
    this.outputTokens += output;
    if (output > 0) span.detail = `${span.detail} · ${output.toLocaleString("en")} tokens`;
  }

  #startCall(data: RunEvent["data"], time: number): void {
    const id = asText(data["toolCallId"]);
    const kind = asText(data["toolKind"]) === "code_mode_exec" ? "cell" : "call";
    const name = asText(data["toolName"]) || asText(data["toolId"]);
    const span: Span = { id, kind, parentId: asText(data["parentToolCallId"]), name, detail: "", startedAt: time, endedAt: null, state: "running", toolCallId: id };
    if (data["input"] !== undefined) span.input = data["input"];
    span.detail = kind === "cell" ? firstLine(asText(asObject(data["input"])["code"])) : summarize(data["input"] ?? null);
    this.#start(span);
  }

  #endCall(data: RunEvent["data"], time: number): void {
    const span = this.#byId.get(asText(data["toolCallId"]));
    if (span === undefined) return;
    span.endedAt = time;
    if (data["result"] !== undefined) span.result = data["result"];
    const error = asText(data["error"]);
    if (error !== "") span.error = error;
    if (span.state !== "running") return;
    const status = span.kind === "cell" ? asText(asObject(data["result"])["status"]) : "";
    span.state = data["outcome"] === "failed" || status === "failed" ? "failed" : "completed";
  }

  #startWait(name: string, detail: string, parentId: string, time: number): void {
    this.#waits += 1;
    this.#start({ id: `wait:${this.#waits}`, kind: "wait", parentId, name, detail, startedAt: time, endedAt: null, state: "waiting", toolCallId: parentId });
  }

  #closeLast(kind: SpanKind, parentId: string, time: number): void {
    const span = (this.#children.get(parentId) ?? []).findLast((each) => each.kind === kind && each.endedAt === null);
    if (span === undefined) return;
    span.endedAt = time;
    span.state = "completed";
  }

  #startOutside(prefix: string, id: Json | undefined, name: string, detail: string, time: number): void {
    const call = asText(id);
    const parentId = this.#byId.has(call) ? call : "";
    this.#start({ id: `${prefix}:${call}`, kind: "wait", parentId, name, detail, startedAt: time, endedAt: null, state: "waiting", toolCallId: parentId });
  }

  #endOutside(prefix: string, id: Json | undefined, how: string, time: number): void {
    const span = this.#byId.get(`${prefix}:${asText(id)}`);
    if (span === undefined) return;
    span.endedAt = time;
    span.state = how === "answered" ? "completed" : "failed";
    span.detail = `${span.detail} · ${how}`;
  }

  #endTurn(data: RunEvent["data"], time: number): void {
    const status = asText(data["status"]);
    this.error = asText(data["error"]);
    this.#close(status === "completed" || status === "failed" ? status : "aborted", time);
  }

  #end(state: SpanState, event: RunEvent): void {
    this.error = asText(event.data["error"]) || this.error;
    this.#close(state, event.time);
  }

  #close(state: SpanState, time: number): void {
    this.state = state;
    this.endedAt = time;
    for (const span of this.spans) {
      if (span.endedAt !== null) continue;
      span.endedAt = time;
      span.state = state === "completed" ? "completed" : state;
    }
  }

  #start(span: Span): void {
    if (span.parentId !== "" && !this.#byId.has(span.parentId)) span.parentId = "";
    this.spans.push(span);
    this.#byId.set(span.id, span);
    const siblings = this.#children.get(span.parentId);
    if (siblings === undefined) this.#children.set(span.parentId, [span]);
    else siblings.push(span);
  }
}

/** Return a span's share of the visible range, in percent, or null if it lies outside. */
export function placeBar(span: Span, range: { from: number; to: number }, now: number): { left: number; width: number } | null {
  const end = span.endedAt ?? now;
  if (end < range.from || span.startedAt > range.to) return null;
  const length = Math.max(range.to - range.from, 1e-6);
  const left = ((Math.max(span.startedAt, range.from) - range.from) / length) * 100;
  const right = ((Math.min(end, range.to) - range.from) / length) * 100;
  return { left, width: Math.max(right - left, 0) };
}

/** Return round times within a range, about `count` of them, for the ruler. */
export function pickTicks(from: number, to: number, count: number): number[] {
  const length = to - from;
  if (!(length > 0)) return [];
  const rough = length / count;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((each) => each >= rough) ?? magnitude * 10;
  const ticks: number[] = [];
  for (let index = Math.ceil(from / step); index * step <= to; index += 1) ticks.push(index * step);
  return ticks;
}

/** Zoom a range by a factor around a time, within the whole. */
export function zoomRange(range: { from: number; to: number }, factor: number, around: number, whole: { from: number; to: number }): { from: number; to: number } {
  const length = Math.min(Math.max((range.to - range.from) * factor, 1e-4), whole.to - whole.from);
  const share = (around - range.from) / Math.max(range.to - range.from, 1e-6);
  const from = Math.min(Math.max(around - share * length, whole.from), whole.to - length);
  return { from, to: from + length };
}

const MAX_DETAIL = 120;

function firstLine(text: string): string {
  const line = text.split("\n").find((each) => each.trim() !== "") ?? "";
  return line.trim().slice(0, MAX_DETAIL);
}

function asText(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

function asNumber(value: Json | undefined): number {
  return typeof value === "number" ? value : 0;
}

function asObject(value: Json | undefined): { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}
