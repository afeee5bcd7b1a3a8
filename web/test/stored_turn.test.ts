import assert from "node:assert/strict";
import test from "node:test";

import type { SessionDocument, StoredCall, StoredTurn } from "../src/api/types";
import { turnsFromDocument } from "../src/model/stored_turn";
import { measureSavings } from "../src/model/turn";

const CALL: StoredCall = {
  toolCallId: "c1",
  toolId: "code_mode:exec",
  toolName: "exec",
  source: "openclaw",
  input: { code: "short… [9,000 characters]" },
  outcome: "completed",
  result: { status: "failed", error: "TypeError", line: 2, column: 3, output: [{ type: "text", text: "out" }] },
  error: "",
  errorCode: "",
  startedAt: 10,
  endedAt: 12,
  durationMs: 2000,
  approvals: [],
  updates: 0,
  children: [],
};
const TURN: StoredTurn = {
  runId: "r1",
  status: "completed",
  prompt: "hello",
  model: "m",
  surface: "code_mode",
  usage: null,
  error: "",
  startedAt: 1,
  endedAt: 2,
  hasMoreCalls: false,
  calls: [CALL, { ...CALL, toolCallId: "lost", toolName: "read", input: { path: "a" }, result: "text" }],
};
const DOCUMENT: SessionDocument = {
  session: { id: "s", agentId: "main", key: "", title: "", channel: "", sender: "", createdAt: 0, updatedAt: 0, turnCount: 1, messageCount: 4 },
  turns: [TURN],
  messages: [
    { sequence: 0, runId: "r1", role: "user", text: "hello" },
    {
      sequence: 1,
      runId: "r1",
      role: "assistant",
      text: "I look.",
      thinking: "hm",
      toolCalls: [{ callId: "c1", name: "exec", arguments: JSON.stringify({ code: "the whole program, which is longer than its record" }) }],
    },
    { sequence: 2, runId: "r1", role: "tool", callId: "c1", name: "exec", content: "{}" },
    { sequence: 3, runId: "r1", role: "user", text: "and b" },
    { sequence: 4, runId: "r1", role: "assistant", text: "Done." },
  ],
};

test("a stored turn has the same parts as a live one, and no call is lost", () => {
  const [turn] = turnsFromDocument(DOCUMENT);
  assert.equal(turn?.prompt?.text, "hello");
  assert.deepEqual(
    turn?.items.map((item) => (item.kind === "call" ? item.callId : item.kind)),
    ["thinking", "text", "c1", "steered", "text", "lost"],
  );
});

test("a stored program is complete and has the position of its error", () => {
  const call = turnsFromDocument(DOCUMENT)[0]?.calls.get("c1");
  assert.equal(call?.code, "the whole program, which is longer than its record");
  assert.equal(call?.status, "failed");
  assert.deepEqual([call?.line, call?.column, call?.output.length], [2, 3, 1]);
});

test("a program whose arguments and result are cut still has its start and its error", () => {
  const [message] = DOCUMENT.messages.filter(({ role }) => role === "assistant");
  const cut = { isCut: true, bytes: 90_000 };
  const [turn] = turnsFromDocument({
    ...DOCUMENT,
    turns: [{ ...TURN, calls: [{ ...CALL, result: '{"status":"failed","error":"a \\"b\\"","line":7,"column":3,"output":[{"ty', resultCut: cut }] }],
    messages: [{ ...message!, toolCalls: [{ callId: "c1", name: "exec", arguments: '{"language":"typescript","code":"one();\\ntwo();\\nthree(\\"x\\", 40)', argumentsCut: cut }] }],
  });
  const call = turn?.calls.get("c1");
  assert.equal(call?.code, 'one();\ntwo();\nthree("x", 40)');
  assert.equal(call?.language, "typescript");
  assert.deepEqual([call?.status, call?.error, call?.line, call?.column], ["failed", 'a "b"', 7, 3]);
});

test("the savings of a turn count definitions, and results that stayed in programs", () => {
  const toolBytes = { sent: 1000, direct: 9000, sentTokens: 250, directTokens: 2250 };
  const nested: StoredCall = { ...CALL, toolCallId: "n1", toolName: "read", input: {}, result: "x".repeat(400) };
  const long: StoredCall = { ...nested, toolCallId: "n2", result: "start… [50,000 characters]" };
  const page: StoredCall = { ...nested, toolCallId: "n3", result: "short", resultCut: { isCut: true, bytes: 7000 } };
  const program: StoredCall = { ...CALL, result: { status: "completed", value: 1 }, children: [nested, long, page] };
  const [turn] = turnsFromDocument({ ...DOCUMENT, turns: [{ ...TURN, toolBytes, calls: [program] }] });
  assert.ok(turn);
  const savings = measureSavings(turn);
  const direct = 400 + 26 + 50_000 + 7000;
  const sent = JSON.stringify(program.result).length;
  assert.deepEqual(savings, {
    definitions: { sent: 1000, direct: 9000 },
    results: { sent, direct },
    bytes: 8000 + direct - sent,
    tokens: Math.floor((8000 + direct - sent) / 4),
  });
});

test("a turn with direct tools has saved nothing", () => {
  const toolBytes = { sent: 9000, direct: 9000, sentTokens: 2250, directTokens: 2250 };
  const [turn] = turnsFromDocument({ ...DOCUMENT, turns: [{ ...TURN, toolBytes, calls: [{ ...CALL, toolName: "read", input: {} }] }] });
  assert.ok(turn);
  assert.equal(measureSavings(turn), null);
});

test("a program that is cut in the middle of an escape, or is no JSON, is shown as far as it is known", () => {
  const codeOf = (text: string) => {
    const message = { sequence: 1, runId: "r1", role: "assistant" as const, toolCalls: [{ callId: "c1", name: "exec", arguments: text, argumentsCut: { isCut: true, bytes: 9000 } }] };
    const [turn] = turnsFromDocument({ ...DOCUMENT, turns: [{ ...TURN, calls: [] }], messages: [message] });
    return turn?.calls.get("c1")?.code;
  };
  assert.equal(codeOf('{"code": "say(\\u00e9\\u00'), "say(é");
  assert.equal(codeOf('{"code": "a\\\\u12'), "a\\u12");
  assert.equal(codeOf('{"code": "first line\nsecond'), "first line\nsecond");
});
