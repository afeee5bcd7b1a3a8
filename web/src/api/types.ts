/** JSON of the gateway's API, as far as the app reads it. Times are seconds since 1970. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type RunState = "queued" | "running" | "waiting" | "completed" | "failed" | "aborted" | "interrupted";

export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cachedTokens: number;
}

/** The size of the tools in the requests of a turn, and what all of them would have cost directly. */
export interface ToolBytes {
  sent: number;
  direct: number;
  sentTokens: number;
  directTokens: number;
}

export type SessionState = "idle" | "queued" | "running" | "waiting";

export interface SessionInfo {
  id: string;
  agentId: string;
  key: string;
  title: string;
  channel: string;
  sender: string;
  createdAt: number;
  updatedAt: number;
  turnCount: number;
  messageCount: number;
  state?: SessionState;
}

export interface SessionPage {
  sessions: SessionInfo[];
  nextCursor: string | null;
}

export interface StoredCall {
  toolCallId: string;
  toolId: string;
  toolName: string;
  source: string;
  input: Json;
  outcome: string;
  result: Json;
  /** The part of a call that is too large for the page is cut. */
  inputCut?: Cut | null;
  resultCut?: Cut | null;
  error: string;
  errorCode: string;
  startedAt: number | null;
  endedAt: number | null;
  durationMs: number | null;
  approvals: StoredApproval[];
  updates: number;
  children: StoredCall[];
}

export interface Cut {
  isCut: boolean;
  bytes: number;
}

export interface StoredApproval {
  approvalId?: string;
  answer?: string;
  how?: string;
  reason?: string;
}

export interface StoredTurn {
  runId: string;
  status: RunState;
  prompt: string;
  model: string;
  surface: string;
  usage: Usage | null;
  toolBytes?: ToolBytes | null;
  error: string;
  startedAt: number;
  endedAt: number | null;
  hasMoreCalls: boolean;
  calls: StoredCall[];
  /** The answer to a command. */
  reply?: string;
  trigger?: string;
  /** Texts that the agent sent during the turn. */
  sent?: string[];
  media?: MediaInfo[];
}

export interface MediaInfo {
  id: string;
  name: string;
  type: string;
  size: number;
  url: string;
}

export interface StoredMessage {
  sequence: number;
  runId: string;
  role: "user" | "assistant" | "tool" | "system";
  text?: string;
  contentCut?: Cut | null;
  images?: { url: string }[];
  thinking?: string;
  thinkingCut?: Cut | null;
  toolCalls?: { callId: string; name: string; arguments: string; argumentsCut?: Cut | null }[];
  callId?: string;
  name?: string;
  content?: string;
  isError?: boolean;
  model?: string;
  usage?: Usage | null;
}

export interface SessionDocument {
  session: SessionInfo;
  turns: StoredTurn[];
  messages: StoredMessage[];
  nextCursor?: string | null;
}

export interface ApprovalRequest {
  approvalId: string;
  toolCallId: string;
  parentToolCallId: string | null;
  toolId: string;
  toolName: string;
  input: Json;
  reason: string;
  runId: string;
  sessionId: string;
  agentId: string;
  createdAt: number;
  expiresAt: number;
}

export interface ClientCall {
  callId: string;
  parentToolCallId: string | null;
  name: string;
  arguments: Json;
}

export interface RunInfo {
  runId: string;
  sessionId: string;
  agentId: string;
  state: RunState;
  isLive: boolean;
  lastSequence: number;
  result: { text: string; error: string; errorCode: string; usage: Usage | null } | null;
  pendingApprovals: ApprovalRequest[];
  pendingClientCalls: ClientCall[];
  pendingInput: { inputId: string; text: string; questions: Json; expiresAt: number } | null;
}

export interface StartedRun {
  runId: string;
  sessionId: string;
  agentId: string;
  state: string;
}

export interface Command {
  name: string;
  description: string;
}

/** An event of `GET /api/events`. */
export interface AppEvent {
  kind: string;
  time: number;
  sessionId: string;
  runId: string;
  /** The number of the event in its run; -1 for others. */
  sequence: number;
  data: { [key: string]: Json };
}

export interface WebSession {
  isSignedIn: boolean;
  scopes: string[];
  version: string;
  authMode: string;
}

export interface SearchHit {
  sessionId: string;
  title: string;
  runId: string;
  sequence: number;
  role: string;
  snippet: { text: string; isMatch: boolean }[];
  time: number;
}

/** A part of a text that other answers cut. Offsets are numbers of characters. */
export interface TextPart {
  text: string;
  offset: number;
  total: number;
  nextOffset: number | null;
}
