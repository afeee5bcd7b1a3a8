import assert from "node:assert/strict";
import test from "node:test";

import { matchPath } from "../src/router";

test("a pattern names the parts of a path", () => {
  assert.deepEqual(matchPath("/sessions/:sessionId", "/sessions/s%201"), { sessionId: "s 1" });
  assert.deepEqual(matchPath("/", "/"), {});
  assert.deepEqual(matchPath("/catalog", "/catalog/"), {});
});

test("another path does not match, and a malformed one does no harm", () => {
  assert.equal(matchPath("/sessions/:sessionId", "/sessions"), undefined);
  assert.equal(matchPath("/sessions/:sessionId", "/sessions/"), undefined);
  assert.equal(matchPath("/sessions/:sessionId", "/runs/1"), undefined);
  assert.deepEqual(matchPath("/runs/:runId", "/runs/%zz"), { runId: "%zz" });
});
