import assert from "node:assert/strict";
import test from "node:test";

import { nextDelay } from "../src/api/event_stream";
import { SseParser } from "../src/model/sse";

const STREAM = ': hello\r\n\r\nid: e.1\nevent: text.delta\ndata: {"a":1}\n\ndata: one\ndata: two\nid: e.2\n\nevent: lost\n\n';

test("a stream gives the same events however it is cut", () => {
  const expected = [
    { id: "e.1", event: "text.delta", data: '{"a":1}' },
    { id: "e.2", event: "message", data: "one\ntwo" },
  ];
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new SseParser();
    const events = [];
    for (let start = 0; start < STREAM.length; start += size) events.push(...parser.feed(STREAM.slice(start, start + size)));
    assert.deepEqual(events, expected, `pieces of ${size}`);
  }
});

test("an event that is not complete is kept back", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.feed("data: 1\n"), []);
  assert.equal(parser.feed("\n").length, 1);
});

test("waits before reconnecting grow from 0.8 to 15 seconds, with jitter", () => {
  for (let attempt = 0; attempt < 12; attempt += 1) {
    for (const random of [0, 0.5, 0.999]) {
      const delay = nextDelay(attempt, random);
      assert.ok(delay >= 800 && delay <= 15_000, `${attempt}: ${delay}`);
    }
  }
  assert.ok(nextDelay(8, 0.1) !== nextDelay(8, 0.9));
  assert.ok(nextDelay(3, 0.5) > nextDelay(1, 0.5));
});
