import assert from "node:assert/strict";
import test from "node:test";

import type { AppEvent, Json } from "../src/api/types";
import { applyEvents } from "../src/model/live_turn";
import { type Turn, countCalls, emptyTurn } from "../src/model/turn";

type Step = [kind: string, data?: { [key: string]: Json }];

function numbered(steps: readonly Step[], first = 0): AppEvent[] {
  return steps.map(([kind, data = {}], index) => ({
    kind,
    time: 100 + first + index,
    sessionId: "session",
    runId: "run",
    sequence: first + index,
    data,
  }));
}

const apply = (steps: readonly Step[]): Turn => applyEvents(emptyTurn("run"), numbered(steps));

const PROGRAM: readonly Step[] = [
  ["run.started", { model: "m" }],
  ["thinking.delta", { text: "First " }],
  ["thinking.delta", { text: "think." }],
  ["text.delta", { text: "Read" }],
  ["text.delta", { text: "ing." }],
  ["message.completed", { text: "Reading.", toolCalls: [{ callId: "c1", name: "exec", arguments: '{"code":"long program","language":"typescript"}' }] }],
  ["call.started", { toolCallId: "c1", toolId: "code_mode:exec", toolName: "exec", input: { code: "long…" } }],
  ["cell.started", { toolCallId: "c1", runId: "cell" }],
  ["call.started", { toolCallId: "c1.1", parentToolCallId: "c1", toolName: "read", input: { path: "a" } }],
  ["call.started", { toolCallId: "c1.2", parentToolCallId: "c1", toolName: "write", input: { path: "b" } }],
  ["call.ended", { toolCallId: "c1.1", parentToolCallId: "c1", outcome: "failed", error: "no file", errorCode: "tool_failed" }],
  ["approval.requested", { toolCallId: "c1.2", approvalId: "a1", reason: "it writes", input: { path: "b" }, expiresAt: 500 }],
  ["run.waiting"],
];

test("text, thinking and a program with nested calls appear in their order", () => {
  const turn = apply(PROGRAM);
  assert.deepEqual(turn.items.map((item) => item.kind), ["thinking", "text", "call"]);
  const [thinking, text] = turn.items;
  assert.ok(thinking?.kind === "thinking" && thinking.text === "First think." && !thinking.isGrowing);
  assert.ok(text?.kind === "text" && text.text === "Reading." && !text.isGrowing);
  const program = turn.calls.get("c1");
  assert.equal(program?.code, "long program");
  assert.equal(program?.language, "typescript");
  assert.deepEqual(program?.children, ["c1.1", "c1.2"]);
  assert.deepEqual(program && countCalls(turn.calls, program), { total: 2, failed: 1, running: 1 });
  assert.equal(turn.status, "waiting");
});

test("an approval opens at its call, and its answer closes it wherever it was given", () => {
  const waiting = apply(PROGRAM);
  assert.equal(waiting.calls.get("c1.2")?.status, "waiting");
  assert.equal(waiting.calls.get("c1.2")?.approvals[0]?.answer, "");
  const answered = applyEvents(
    waiting,
    numbered([["approval.answered", { toolCallId: "c1.2", approvalId: "a1", answer: "allow", how: "once" }], ["run.resumed"]], PROGRAM.length),
  );
  assert.deepEqual(answered.calls.get("c1.2")?.approvals[0], {
    approvalId: "a1",
    reason: "it writes",
    input: { path: "b" },
    expiresAt: 500,
    answer: "allow",
    how: "once",
  });
  assert.equal(answered.calls.get("c1.2")?.status, "running");
  assert.equal(waiting.calls.get("c1.2")?.status, "waiting", "the state before is not changed");
});

test("events that come twice, in any batches, give the same state", () => {
  const events = numbered(PROGRAM);
  const once = applyEvents(emptyTurn("run"), events);
  for (let size = 1; size < events.length; size += 3) {
    let turn = emptyTurn("run");
    for (let start = 0; start < events.length; start += size) turn = applyEvents(turn, events.slice(0, start + size));
    assert.deepEqual(turn, once, `batches of ${size}`);
  }
});

test("a failed program has the position of its error and its output", () => {
  const turn = apply([
    ["call.started", { toolCallId: "c", toolName: "exec", input: { code: "a.map()" } }],
    ["cell.started", { toolCallId: "c", runId: "cell" }],
    ["cell.output", { toolCallId: "c", text: "one" }],
    ["cell.ended", { toolCallId: "c", status: "failed", reason: "guest_error" }],
    ["call.ended", { toolCallId: "c", outcome: "completed", result: { status: "failed", error: "TypeError", line: 6, column: 27, output: [{ type: "text", text: "one" }] } }],
  ]);
  const call = turn.calls.get("c");
  assert.equal(call?.status, "failed");
  assert.equal(call?.error, "TypeError");
  assert.deepEqual([call?.line, call?.column], [6, 27]);
  assert.deepEqual(call?.output, [{ text: "one", isJson: false }]);
});

test("a program is suspended, resumed, and aborted at the end of its turn", () => {
  const steps: Step[] = [
    ["call.started", { toolCallId: "c", toolName: "exec", input: { code: "yield_control()" } }],
    ["cell.started", { toolCallId: "c", runId: "cell" }],
    ["cell.suspended", { toolCallId: "c", reason: "yield", snapshotBytes: 4343 }],
    ["call.ended", { toolCallId: "c", outcome: "completed", result: { status: "waiting", reason: "yield" } }],
  ];
  const suspended = apply(steps);
  assert.equal(suspended.calls.get("c")?.status, "suspended");
  assert.equal(suspended.calls.get("c")?.cell?.snapshotBytes, 4343);
  const resumed = applyEvents(suspended, numbered([["cell.resumed", { toolCallId: "c", cause: "wait" }]], 4));
  assert.equal(resumed.calls.get("c")?.status, "running");
  const ended = applyEvents(suspended, numbered([["cell.ended", { toolCallId: "c", status: "aborted", reason: "the turn has ended" }]], 4));
  assert.equal(ended.calls.get("c")?.status, "aborted");
  assert.equal(ended.calls.get("c")?.error, "the turn has ended");
});

test("an aborted run leaves nothing running", () => {
  const turn = applyEvents(apply(PROGRAM), numbered([["run.aborted", { text: "Reading.", error: "" }]], PROGRAM.length));
  assert.equal(turn.status, "aborted");
  assert.deepEqual(
    [...turn.calls.values()].map(({ status }) => status),
    ["aborted", "failed", "aborted"],
  );
});

test("a command answers without a model, and its text is shown once", () => {
  const turn = apply([["run.started", { command: "status" }], ["message.completed", { text: "Agent: main", toolCalls: [] }], ["run.completed", { text: "Agent: main" }]]);
  assert.deepEqual(turn.items.map((item) => (item.kind === "text" ? item.text : item.kind)), ["Agent: main"]);
});

test("steered messages, questions and retries are part of the turn", () => {
  const turn = apply([
    ["steered", { text: "also b", followupRunId: "run2" }],
    ["input.requested", { inputId: "i", text: "Which?", questions: null, expiresAt: 9 }],
    ["input.answered", { inputId: "i", how: "answered" }],
    ["retry", { attempt: 2, problem: "overloaded" }],
  ]);
  const [steered, question] = turn.items;
  assert.ok(steered?.kind === "steered" && steered.note.includes("turn of its own"));
  assert.ok(question?.kind === "question" && question.question.how === "answered");
  assert.match(turn.activity, /overloaded/);
});

test("a steered message says whether the model has read it", () => {
  const steps: Step[] = [["run.started"], ["steered", { text: "also b" }]];
  const note = (turn: Turn) => turn.items.flatMap((item) => (item.kind === "steered" ? [item.note] : []))[0];
  assert.match(note(apply(steps)) ?? "", /Accepted/);
  assert.equal(note(apply([...steps, ["model.started", { model: "m" }]])), "");
  assert.match(note(apply([...steps, ["run.aborted"]])) ?? "", /ended before/);
});

test("a client tool waits until its result was sent", () => {
  const requested: Step[] = [
    ["call.started", { toolCallId: "c", toolName: "ask", input: { q: 1 } }],
    ["client_call.requested", { callId: "c", name: "ask", arguments: { q: 1 } }],
  ];
  const waiting = apply(requested);
  assert.equal(waiting.calls.get("c")?.clientRequest?.how, "");
  const answered = applyEvents(waiting, numbered([["client_call.answered", { callId: "c", how: "answered" }]], 2));
  assert.equal(answered.calls.get("c")?.clientRequest?.how, "answered");
  assert.equal(answered.items.length, 1);
});

test("ten thousand nested calls are reduced in linear time", () => {
  const steps: Step[] = [["call.started", { toolCallId: "c", toolName: "exec", input: { code: "" } }]];
  for (let index = 0; index < 10_000; index += 1) steps.push(["call.started", { toolCallId: `c.${index}`, parentToolCallId: "c", toolName: "read" }]);
  assert.equal(apply(steps).calls.get("c")?.children.length, 10_000);
});

test("a program is another object if a call below it has changed, else the same", () => {
  const before = apply([
    ["call.started", { toolCallId: "c1", toolName: "exec", input: { code: "1" } }],
    ["call.started", { toolCallId: "c1.1", parentToolCallId: "c1", toolName: "agent" }],
    ["call.started", { toolCallId: "c1.1.1", parentToolCallId: "c1.1", toolName: "read" }],
    ["call.started", { toolCallId: "c2", toolName: "exec", input: { code: "2" } }],
  ]);
  const after = applyEvents(before, numbered([["call.ended", { toolCallId: "c1.1.1", parentToolCallId: "c1.1", outcome: "completed" }]], 4));
  assert.ok(after.calls.get("c1") !== before.calls.get("c1"));
  assert.ok(after.calls.get("c1.1") !== before.calls.get("c1.1"));
  assert.equal(after.calls.get("c2"), before.calls.get("c2"));
});
