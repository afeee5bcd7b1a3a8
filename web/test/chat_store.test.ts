import assert from "node:assert/strict";
import test from "node:test";

import type { AppEvent, Json, RunState, SessionDocument } from "../src/api/types";
import { ChatStore } from "../src/state/chat";

const SESSION = { id: "s", agentId: "main", key: "", title: "", channel: "", sender: "", createdAt: 0, updatedAt: 0, turnCount: 0, messageCount: 0 };

function page(runs: readonly (readonly [string, RunState])[], nextCursor: string | null = null): SessionDocument {
  return {
    session: SESSION,
    nextCursor,
    turns: runs.map(([runId, status]) => ({
      runId,
      status,
      prompt: `prompt of ${runId}`,
      model: "m",
      surface: "code_mode",
      usage: null,
      error: "",
      startedAt: 1,
      endedAt: null,
      hasMoreCalls: false,
      calls: [],
    })),
    messages: runs
      .filter(([, status]) => status !== "running")
      .map(([runId], index) => ({ sequence: index, runId, role: "assistant" as const, text: `answer of ${runId}` })),
  };
}

/** Answer the next requests with these pages, and return the addresses that were asked for. */
function answerWith(...pages: SessionDocument[]): string[] {
  const asked: string[] = [];
  globalThis.fetch = (address) => {
    asked.push(String(address));
    return Promise.resolve(new Response(JSON.stringify(pages[Math.min(asked.length, pages.length) - 1])));
  };
  return asked;
}

function event(runId: string, sequence: number, kind: string, data: { [key: string]: Json } = {}): AppEvent {
  return { kind, time: sequence, sessionId: "s", runId, sequence, data };
}

const texts = (chat: ChatStore, runId: string) => chat.turn(runId).value.items.flatMap((item) => (item.kind === "text" ? [item.text] : []));

test("a page that is loaded in the middle of a run shows its message and what it has said", async () => {
  answerWith(page([["r1", "completed"], ["r2", "running"]]));
  const chat = new ChatStore("s");
  chat.apply([event("r2", 0, "run.started"), event("r2", 1, "text.delta", { text: "so far" })]);
  await chat.load();
  assert.deepEqual(chat.info.value.runIds, ["r1", "r2"]);
  assert.equal(chat.turn("r2").value.prompt?.text, "prompt of r2");
  assert.deepEqual(texts(chat, "r2"), ["so far"]);
  assert.equal(chat.liveTurn?.runId, "r2");
});

test("older turns come before the others, once", async () => {
  const asked = answerWith(page([["r3", "completed"]], "cursor"), page([["r1", "completed"], ["r2", "completed"]]), page([["r3", "completed"]], "cursor"));
  const chat = new ChatStore("s");
  await chat.load();
  await chat.loadOlder();
  await chat.loadOlder();
  await chat.load();
  assert.deepEqual(chat.info.value.runIds, ["r1", "r2", "r3"]);
  assert.equal(chat.info.value.nextCursor, null);
  assert.equal(asked.length, 3);
  assert.match(asked[1] ?? "", /before=cursor/);
});

test("a run that ended while the page was away is taken from the store", async () => {
  answerWith(page([["r1", "running"]]), page([["r1", "interrupted"]]));
  const chat = new ChatStore("s");
  await chat.load();
  chat.apply([event("r1", 0, "run.started"), event("r1", 1, "text.delta", { text: "half" })]);
  chat.reset();
  await chat.load();
  assert.equal(chat.turn("r1").value.status, "interrupted");
  assert.deepEqual(texts(chat, "r1"), ["answer of r1"]);
  assert.equal(chat.liveTurn, undefined);
});

test("after a reset the events of a run are taken from the first one, without repetition", async () => {
  answerWith(page([["r1", "running"]]));
  const chat = new ChatStore("s");
  await chat.load();
  chat.apply([event("r1", 0, "run.started"), event("r1", 1, "text.delta", { text: "one " })]);
  chat.reset();
  chat.apply([event("r1", 0, "run.started"), event("r1", 2, "text.delta", { text: "one two" })]);
  assert.deepEqual(texts(chat, "r1"), ["one two"]);
  assert.equal(chat.turn("r1").value.prompt?.text, "prompt of r1");
});

test("a refresh asks for a few turns, and for a page if they leave a gap", async () => {
  const far = ["r7", "r8", "r9"].map((runId) => [runId, "completed"] as const);
  const asked = answerWith(
    page([["r1", "completed"], ["r2", "completed"]]),
    page([["r2", "completed"], ["r3", "completed"]], "r2"),
    page(far.slice(1), "r8"),
    page(far, "r7"),
    page([["r6", "completed"]], "r6"),
  );
  const chat = new ChatStore("s");
  await chat.load();
  await chat.load();
  assert.deepEqual(chat.info.value.runIds, ["r1", "r2", "r3"]);
  assert.equal(chat.info.value.nextCursor, null);
  await chat.load();
  assert.deepEqual(chat.info.value.runIds, ["r7", "r8", "r9"]);
  assert.equal(asked.length, 4);
  await chat.loadOlder();
  assert.deepEqual(chat.info.value.runIds, ["r6", "r7", "r8", "r9"]);
  assert.match(asked[4] ?? "", /before=r7/);
});

test("a page that nobody is signed in to loads the session later", async () => {
  globalThis.fetch = () => Promise.resolve(new Response("{}", { status: 401 }));
  const chat = new ChatStore("s");
  await chat.load();
  assert.equal(chat.info.value.status, "loading");
  answerWith(page([["r1", "completed"]]));
  await chat.load();
  assert.deepEqual(chat.info.value.runIds, ["r1"]);
});
