import assert from "node:assert/strict";
import test from "node:test";

import { pickTicks, placeBar, type RunEvent, Timeline, zoomRange } from "../src/views/timeline_model";

const event = (time: number, kind: string, data: RunEvent["data"] = {}): RunEvent => ({ kind, time, sequence: 0, data });
const all = () => true;

function play(events: RunEvent[]): Timeline {
  const timeline = new Timeline();
  for (const each of events) timeline.add(each);
  return timeline;
}

const PROGRAM = [
  event(10, "run.started", { runId: "run_1", sessionId: "session_1" }),
  event(10.1, "model.started", { model: "scripted/model" }),
  event(11, "message.completed", { usage: { inputTokens: 50, outputTokens: 7 } }),
  event(11.1, "call.started", { toolCallId: "c", toolKind: "code_mode_exec", toolName: "exec", input: { code: "\nreturn 1" } }),
  event(11.2, "call.started", { toolCallId: "c.1", parentToolCallId: "c", toolKind: "tool", toolName: "pay", input: { amount: 3 } }),
  event(11.3, "approval.requested", { toolCallId: "c.1", reason: "money" }),
  event(11.4, "cell.suspended", { toolCallId: "c", reason: "approval", snapshotBytes: 2000 }),
  event(11.4, "run.waiting"),
];

test("a program, its nested call, the approval and the waits are a tree of spans", () => {
  const timeline = play(PROGRAM);
  const rows = timeline.rows(all, new Set()).map(({ span, level }) => `${level} ${span.kind} ${span.name} ${span.state}`);
  assert.deepEqual(rows, ["1 model Model call 1 completed", "1 cell exec running", "2 call pay running", "3 approval Approval waiting", "2 wait Suspended waiting", "1 wait Run waits waiting"]);
  assert.equal(timeline.spans.find((span) => span.kind === "cell")?.detail, "return 1");
  assert.deepEqual([timeline.inputTokens, timeline.outputTokens], [50, 7]);
});

test("answers end the spans that waited, and the end of the run ends all", () => {
  const timeline = play([
    ...PROGRAM,
    event(12, "approval.answered", { toolCallId: "c.1", answer: "allow", how: "once" }),
    event(12, "run.resumed"),
    event(12, "cell.resumed", { toolCallId: "c" }),
    event(12.1, "call.ended", { toolCallId: "c.1", outcome: "completed", result: "paid" }),
  ]);
  const states = () => timeline.spans.map((span) => span.state);
  assert.deepEqual(states(), ["completed", "running", "completed", "completed", "completed", "completed"]);
  timeline.add(event(13, "run.aborted", { error: "stopped" }));
  assert.equal(timeline.spans[1]?.state, "aborted");
  assert.deepEqual([timeline.state, timeline.endedAt, timeline.error], ["aborted", 13, "stopped"]);
});

test("a program that fails is a failed cell, though its call completed", () => {
  const timeline = play([
    event(1, "call.started", { toolCallId: "c", toolKind: "code_mode_exec", toolName: "exec", input: {} }),
    event(2, "cell.ended", { toolCallId: "c", status: "failed" }),
    event(2, "call.ended", { toolCallId: "c", outcome: "completed", result: { status: "failed" } }),
  ]);
  assert.equal(timeline.spans[0]?.state, "failed");
});

test("the events of a stored trajectory give the same spans", () => {
  const timeline = play([event(1, "run.started"), event(1, "model.requested", { model: "m" }), event(2, "model.answered", { usage: { inputTokens: 1, outputTokens: 2 } }), event(3, "turn.ended", { status: "completed" })]);
  assert.deepEqual(timeline.spans.map(({ kind, startedAt, endedAt }) => [kind, startedAt, endedAt]), [["model", 1, 2]]);
  assert.equal(timeline.isEnded, true);
});

test("a filter keeps what matches and moves its children up; a collapsed row hides them", () => {
  const timeline = play(PROGRAM);
  const names = (rows: { span: { name: string }; level: number }[]) => rows.map(({ span, level }) => `${level} ${span.name}`);
  assert.deepEqual(names(timeline.rows((span) => span.kind === "call", new Set())), ["1 pay"]);
  assert.deepEqual(names(timeline.rows(all, new Set(["c"]))), ["1 Model call 1", "1 exec", "1 Run waits"]);
});

test("events without a known call, kind or time do no harm", () => {
  const timeline = play([event(1, "call.ended", { toolCallId: "x" }), event(1, "approval.answered", {}), event(1, "unheard.of"), { kind: "replay.started", data: {} } as unknown as RunEvent]);
  assert.deepEqual(timeline.spans, []);
});

test("bars, ticks and zoom stay within the range", () => {
  const [span] = play([event(10, "model.started"), event(20, "message.completed")]).spans;
  assert.ok(span !== undefined);
  assert.deepEqual(placeBar(span, { from: 0, to: 20 }, 30), { left: 50, width: 50 });
  assert.equal(placeBar(span, { from: 21, to: 30 }, 30), null);
  assert.deepEqual(pickTicks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(pickTicks(0, 0, 5), []);
  assert.deepEqual(zoomRange({ from: 0, to: 10 }, 0.5, 10, { from: 0, to: 10 }), { from: 5, to: 10 });
  assert.deepEqual(zoomRange({ from: 5, to: 10 }, 4, 7, { from: 0, to: 10 }), { from: 0, to: 10 });
});
