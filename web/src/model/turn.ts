/** One turn as the page shows it: built from stored messages, or from the events of its run. */
import type { Cut, Json, MediaInfo, RunState, ToolBytes, Usage } from "../api/types";

export type CallStatus = "running" | "waiting" | "suspended" | "completed" | "failed" | "aborted";

export interface Approval {
  /** Empty if nobody was asked. */
  approvalId: string;
  reason: string;
  input: Json;
  expiresAt: number;
  /** `allow`, `deny`, `expired`, `withdrawn` or `given_up`; empty while it is open. */
  answer: string;
  how: string;
}

/** A call of a tool that the client runs: somebody has to send its result. */
export interface ClientRequest {
  callId: string;
  arguments: Json;
  /** `answered`, `expired` or `given up`; empty while it is open. */
  how: string;
}

export interface Cell {
  cellId: string;
  status: "running" | "suspended" | "completed" | "failed" | "aborted" | "expired";
  reason: string;
  snapshotBytes: number;
  /** How often it was suspended. */
  suspensions: number;
  /** While it is suspended, it survives a restart of the gateway. */
  isDurable: boolean;
}

/** A piece of the output of a program. */
export interface Output {
  text: string;
  isJson: boolean;
  /** A note about an image; the image itself is in `images` of the call when the turn has ended. */
  isImage?: boolean;
}

export interface Call {
  id: string;
  parentId: string;
  toolId: string;
  toolName: string;
  source: string;
  /** `exec`: a program with calls of its own. */
  isProgram: boolean;
  code: string;
  language: string;
  input: Json;
  inputCut: Cut | null;
  status: CallStatus;
  result: Json;
  resultCut: Cut | null;
  error: string;
  errorCode: string;
  /** Where the program failed, from 1; 0 if unknown. */
  line: number;
  column: number;
  startedAt: number;
  endedAt: number;
  /** Ids of nested calls, in the order of their start. */
  children: readonly string[];
  approvals: readonly Approval[];
  clientRequest: ClientRequest | undefined;
  output: readonly Output[];
  /** Addresses of the images that the model got from the call. */
  images: readonly string[];
  cell: Cell | undefined;
  /** The newest progress that the tool reported. */
  progress: string;
}

export interface Question {
  inputId: string;
  text: string;
  questions: Json;
  expiresAt: number;
  /** `answered`, `expired` or `withdrawn`; empty while it is open. */
  how: string;
}

export type Item =
  | { kind: "text"; id: string; text: string; isGrowing: boolean; sequence: number; cut: Cut | null }
  | { kind: "thinking"; id: string; text: string; isGrowing: boolean }
  | { kind: "call"; id: string; callId: string }
  | { kind: "steered"; id: string; text: string; note: string }
  | { kind: "sent"; id: string; text: string }
  | { kind: "media"; id: string; media: MediaInfo }
  | { kind: "question"; id: string; question: Question }
  | { kind: "notice"; id: string; text: string; isProblem: boolean };

/** What becomes of a message that waits for the end of a turn. */
export const QUEUED = "Queued: its turn comes after the running one";

export interface Prompt {
  text: string;
  images: readonly string[];
  media: readonly MediaInfo[];
}

export interface Turn {
  runId: string;
  status: RunState;
  prompt: Prompt | undefined;
  command: string;
  /** What woke the agent, if it was no message. */
  trigger: string;
  model: string;
  startedAt: number;
  endedAt: number;
  usage: Usage | null;
  toolBytes: ToolBytes | null;
  error: string;
  items: readonly Item[];
  calls: ReadonlyMap<string, Call>;
  hasMoreCalls: boolean;
  /** The number of the last event; -1 for a stored turn. */
  lastSequence: number;
  /** Events that the page missed because the run has discarded them. */
  dropped: number;
  /** What the run does now, if it needs a word: a retry, for example. */
  activity: string;
}

export function emptyTurn(runId: string): Turn {
  return {
    runId,
    status: "queued",
    prompt: undefined,
    command: "",
    trigger: "",
    model: "",
    startedAt: 0,
    endedAt: 0,
    usage: null,
    toolBytes: null,
    error: "",
    items: [],
    calls: new Map(),
    hasMoreCalls: false,
    lastSequence: -1,
    dropped: 0,
    activity: "",
  };
}

export function emptyCall(id: string, parentId: string): Call {
  return {
    id,
    parentId,
    toolId: "",
    toolName: "",
    source: "",
    isProgram: false,
    code: "",
    language: "",
    input: null,
    inputCut: null,
    status: "running",
    result: null,
    resultCut: null,
    error: "",
    errorCode: "",
    line: 0,
    column: 0,
    startedAt: 0,
    endedAt: 0,
    children: [],
    approvals: [],
    clientRequest: undefined,
    output: [],
    images: [],
    cell: undefined,
    progress: "",
  };
}

export function isLive(turn: Turn): boolean {
  return turn.status === "queued" || turn.status === "running" || turn.status === "waiting";
}

const PROGRAM_TOOLS = new Set(["exec", "tool_search_code"]);

/** Return the call with the program in its input, if it has one. */
export function withInput(call: Call, toolName: string, input: Json): Call {
  const fields = isObject(input) ? input : {};
  const code = fields["code"];
  if (!PROGRAM_TOOLS.has(toolName) || typeof code !== "string") return { ...call, toolName, input };
  const language = fields["language"];
  return {
    ...call,
    toolName,
    input,
    isProgram: true,
    // The program of the model's message is complete; the one of the record may be cut.
    code: call.code.length > code.length ? call.code : code,
    language: typeof language === "string" ? language : call.language || "javascript",
  };
}

/** Return the call with the result of a program: its status, output and the position of its error. */
export function withProgramResult(call: Call, result: Json): Call {
  if (typeof result === "string") return withProgramResult(call, readCutResult(result));
  if (!isObject(result)) return call;
  const { status, error, reason, line, column, output } = result;
  const cellStatus = call.cell?.status;
  const isAborted = reason === "aborted" || cellStatus === "aborted" || cellStatus === "expired";
  let shown: CallStatus = call.status;
  if (status === "completed") shown = "completed";
  else if (status === "failed") shown = isAborted ? "aborted" : "failed";
  else if (status === "waiting") shown = isAborted ? "aborted" : "suspended";
  return {
    ...call,
    status: shown,
    error: typeof error === "string" ? error : call.error,
    line: typeof line === "number" ? line : 0,
    column: typeof column === "number" ? column : 0,
    output: call.output.length === 0 && Array.isArray(output) ? output.map(readOutput) : call.output,
  };
}

/** Return the first fields of a result of which only the start is there. */
function readCutResult(text: string): Json {
  const status = /^\{\s*"status":\s*"(\w+)"/.exec(text)?.[1];
  if (status === undefined) return null;
  const error = /"error":\s*"((?:[^"\\]|\\.)*)"/.exec(text)?.[1];
  const number = (name: string) => Number(new RegExp(`"${name}":\\s*(\\d+)`).exec(text)?.[1] ?? 0);
  if (status !== "failed" || error === undefined) return { status };
  return { status, error: readJsonText(error), line: number("line"), column: number("column") };
}

/** Return the text of a JSON string without its quotes. What a model writes may be no JSON. */
export function readJsonText(inner: string): string {
  try {
    return JSON.parse(`"${inner}"`) as string;
  } catch {
    return inner;
  }
}

export function readOutput(part: Json): Output {
  if (!isObject(part)) return { text: String(part), isJson: false };
  if (typeof part["text"] === "string") return { text: part["text"], isJson: false };
  const value = part["value"] ?? part["json"] ?? part["result"] ?? part;
  if (isObject(value) && value["type"] === "image" && typeof value["bytes"] === "number") {
    return { text: `${String(value["mimeType"])}, ${value["bytes"].toLocaleString("en")} bytes`, isJson: false, isImage: true };
  }
  return { text: JSON.stringify(value, null, 2), isJson: true };
}

export function isObject(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export interface CallCounts {
  total: number;
  failed: number;
  running: number;
}

/** Count the nested calls below a call. */
export function countCalls(calls: ReadonlyMap<string, Call>, call: Call): CallCounts {
  const counts = { total: 0, failed: 0, running: 0 };
  const pending = [...call.children];
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    const nested = calls.get(id);
    if (nested === undefined) continue;
    counts.total += 1;
    if (nested.status === "failed") counts.failed += 1;
    if (nested.status === "running" || nested.status === "waiting") counts.running += 1;
    pending.push(...nested.children);
  }
  return counts;
}

/** What one kind of content costs in a turn: as it was sent to the model, and with direct tools. */
export interface Cost {
  sent: number;
  direct: number;
}

/** Bytes that code mode saved in a turn, or Tool Search. */
export interface Savings {
  /** The definitions of tools, in all requests. */
  definitions: Cost | null;
  /** Results of nested calls against what their programs returned. A lower bound. */
  results: Cost | null;
  bytes: number;
  tokens: number;
}

const BYTES_PER_TOKEN = 4;
/** The gateway leaves the length of a text in its record when it cuts it. */
const CUT_LENGTH = /… \[([\d,]+) characters\]/g;

/** Compare a turn with one that has the same tools without code mode; null if nothing was saved. */
export function measureSavings(turn: Turn): Savings | null {
  const definitions = turn.toolBytes === null ? null : { sent: turn.toolBytes.sent, direct: turn.toolBytes.direct };
  const results = measureResults(turn.calls);
  const bytes = savedBy(definitions) + savedBy(results);
  return bytes <= 0 ? null : { definitions, results, bytes, tokens: Math.floor(bytes / BYTES_PER_TOKEN) };
}

function savedBy(cost: Cost | null): number {
  return cost === null ? 0 : cost.direct - cost.sent;
}

function measureResults(calls: Turn["calls"]): Cost | null {
  let [sent, direct, hasNested] = [0, 0, false];
  for (const call of calls.values()) {
    const parent = calls.get(call.parentId);
    if (parent === undefined) {
      if (call.isProgram || call.toolName === "wait") sent += resultBytes(call);
    } else {
      direct += resultBytes(call);
      hasNested = true;
    }
  }
  return hasNested ? { sent, direct } : null;
}

function resultBytes({ result, resultCut, error }: Call): number {
  const text = typeof result === "string" ? result : result === null ? error : JSON.stringify(result);
  let bytes = resultCut?.isCut === true ? resultCut.bytes : text.length;
  for (const [, length] of text.matchAll(CUT_LENGTH)) bytes += Number((length ?? "").replaceAll(",", ""));
  return bytes;
}
