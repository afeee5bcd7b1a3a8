import assert from "node:assert/strict";
import test from "node:test";

import type { AppEvent, Json } from "../src/api/types";
import { type OutboxEntry, applyToOutbox } from "../src/model/outbox";

const ENTRY: OutboxEntry = { key: "k", sessionId: "s", text: "also b", attachments: [], mode: "steer", liveRunId: "r", state: "accepted", runId: "r", problem: "" };

function event(kind: string, data: { [key: string]: Json } = {}, runId = "r"): AppEvent {
  return { kind, time: 0, sessionId: "s", runId, sequence: 0, data };
}

test("a steered message disappears when the running turn has taken it", () => {
  assert.deepEqual(applyToOutbox([ENTRY], [event("text.delta", { text: "also b" })]), [ENTRY]);
  assert.deepEqual(applyToOutbox([ENTRY], [event("steered", { text: "also b" })]), []);
});

test("a message that gets a turn of its own waits for that turn", () => {
  const [moved] = applyToOutbox([ENTRY], [event("steered", { text: "also b", followupRunId: "r2" })]);
  assert.deepEqual([moved?.runId, moved?.state], ["r2", "queued"]);
  assert.deepEqual(applyToOutbox(moved ? [moved] : [], [event("run.completed"), event("run.started", {}, "r2")]), []);
});

test("a message that is queued says so until its turn starts", () => {
  const own: OutboxEntry = { ...ENTRY, mode: "followup", liveRunId: "r0" };
  const [queued] = applyToOutbox([own], [event("run.queued")]);
  assert.equal(queued?.state, "queued");
  assert.deepEqual(applyToOutbox([own], [event("run.started")]), []);
});

test("a message for a run that had already ended starts a turn like any other", () => {
  assert.deepEqual(applyToOutbox([{ ...ENTRY, liveRunId: "ended" }], [event("run.started")]), []);
});

test("a message of which nobody knows whether it arrived stays", () => {
  const uncertain: OutboxEntry = { ...ENTRY, state: "uncertain", runId: "" };
  assert.deepEqual(applyToOutbox([uncertain], [event("run.completed"), event("run.started", {}, "")]), [uncertain]);
});
