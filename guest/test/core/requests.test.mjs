/** Requests to the host and `yield_control`: promises with stable ids, each settled once and only by the host. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { startCell } from "./cell.mjs";

const functions = ["call", "search"];
const start = (source) => startCell(source, { functions });

test("a request tells the host its id, its function and its input, and waits", () => {
  const cell = start("return await call({ a: [1] })");
  assert.deepEqual(cell.requests, [{ id: 1, method: "call", input: { a: [1] } }]);
  assert.deepEqual(cell.completed, []);
  cell.deliver([1, true, { b: [2, null, "x"] }]);
  assert.deepEqual(cell.value, { b: [2, null, "x"] });
});

test("ids count up from one, whatever asks", () => {
  const cell = start("search('a'); yield_control('b'); call(); search('c')");
  assert.deepEqual(cell.requests.map(({ id, method, input }) => [id, method, input]), [[1, "search", "a"], [3, "call", null], [4, "search", "c"]]);
  assert.deepEqual(cell.pauses, [{ id: 2, reason: "b" }]);
});

test("answers may come in any order", () => {
  const cell = start("return await Promise.all([call('a'), call('b'), call('c')])");
  cell.deliver([3, true, "C"]);
  cell.deliver([1, true, "A"]);
  assert.deepEqual(cell.completed, []);
  cell.deliver([2, true, "B"]);
  assert.deepEqual(cell.value, ["A", "B", "C"]);
});

test("several answers in one delivery settle in the order of the delivery", () => {
  const cell = start("for (const name of ['a', 'b', 'c']) call(name).then((value) => text(name + value))");
  cell.deliver([2, true, 1], [3, true, 2], [1, true, 3]);
  assert.deepEqual(cell.said, ["b1", "c2", "a3"]);
});

test("a second answer to a request is ignored", () => {
  const cell = start("const value = await call(); text(value); await call(); return value");
  cell.deliver([1, true, "first"], [1, true, "second"], [1, false, { message: "third" }]);
  cell.deliver([1, true, "fourth"]);
  cell.deliver([2, true, null]);
  assert.deepEqual(cell.said, ["first"]);
  assert.equal(cell.value, "first");
  assert.equal(cell.unhandledFailure(), null);
});

test("answers to requests that were never made are ignored", () => {
  const cell = start("return await call()");
  cell.deliver([0, true, 1], [2, true, 1], [-1, true, 1], [null, true, 1], ["__proto__", true, 1], ["constructor", true, 1], [1.5, true, 1]);
  assert.deepEqual(cell.completed, []);
  cell.deliver([1, true, "real"]);
  assert.equal(cell.value, "real");
});

test("an answer to a later request cannot come before the request", () => {
  const cell = start("await call(); return await call()");
  cell.deliver([1, true, 1], [2, true, "forged"]);
  assert.deepEqual(cell.completed, []);
  cell.deliver([2, true, "real"]);
  assert.equal(cell.value, "real");
});

test("an error becomes a plain Error with the host's data on it", () => {
  const cell = start(`
    try { await call() } catch (error) {
      return {
        isError: error instanceof Error && Object.getPrototypeOf(error) === Error.prototype && Error.isError(error),
        name: error.name, message: error.message, code: error.code, toolId: error.toolId, details: error.details,
        text: String(error), keys: Object.keys(error), tag: Object.prototype.toString.call(error),
      };
    }`);
  cell.deliver([1, false, { name: "ToolError", message: "no such file", code: "not_found", toolId: "t", details: { a: [1] } }]);
  assert.deepEqual(cell.value, {
    isError: true,
    name: "ToolError",
    message: "no such file",
    code: "not_found",
    toolId: "t",
    details: { a: [1] },
    text: "ToolError: no such file",
    keys: ["code", "toolId", "details"],
    tag: "[object Error]",
  });
});

test("an error may say no more than its message", () => {
  const cell = start("try { await call() } catch (error) { return [error.name, error.message, Object.keys(error)] }");
  cell.deliver([1, false, { message: "no" }]);
  assert.deepEqual(cell.value, ["Error", "no", []]);
});

test("an error's data cannot change its prototype or its stack", () => {
  const cell = start("try { await call() } catch (error) { return [error instanceof Error, error.stack.includes('forged'), error.a] }");
  cell.deliver([1, false, { message: "m", stack: "forged", ["__proto__"]: { a: 1 } }]);
  assert.deepEqual(cell.value, [true, false, null]);
});

test("the stack of an error from the host begins at the line that asked", () => {
  const cell = start(`
    async function ask() {
      return 1 + await call();
    }
    try { await ask() } catch (error) { text(error.stack) }
    try {
      await yield_control()
    } catch (error) { text(error.stack) }`);
  cell.deliver([1, false, { message: "m" }]);
  cell.deliver([2, false, { message: "m" }]);
  const firstFrames = cell.said.map((stack) => stack.split("\n")[0].trim());
  assert.equal(firstFrames[0], "at ask (cell.js:3:24)");
  assert.match(firstFrames[1], /^at <anonymous> \(cell\.js:7:\d+\)$/);
});

test("an error nobody catches fails the cell, at the line that asked", () => {
  const cell = start("const a = 1;\nawait call()");
  cell.deliver([1, false, { name: "ToolError", message: "broken" }]);
  assert.equal(cell.failed[0].message, "ToolError: broken");
  assert.match(cell.failed[0].stack, /^\s*at <anonymous> \(cell\.js:2:/);
});

test("Promise.race goes on with the fast answer while the slow one is pending", () => {
  const cell = start("const value = await Promise.race([call('slow'), call('fast')]); text(value); return value");
  cell.deliver([2, true, "fast"]);
  assert.equal(cell.value, "fast");
  cell.deliver([1, true, "slow"]);
  assert.deepEqual(cell.said, ["fast"]);
});

test("a rejected request nobody handles is told to the host, until it is handled", () => {
  const cell = start("const lost = call(); setTimeout(() => lost.catch(() => {}), 10)");
  cell.deliver([1, false, { name: "ToolError", message: "lost" }]);
  assert.equal(cell.unhandledFailure().message, "ToolError: lost");
  cell.advance(10);
  assert.equal(cell.unhandledFailure(), null);
});

test("five thousand requests at once are each answered with their own value", () => {
  const cell = start("return await Promise.all(Array.from({ length: 5000 }, (_, index) => call(index)))");
  assert.equal(cell.requests.length, 5000);
  cell.deliver(...cell.requests.toReversed().map(({ id, input }) => [id, true, input * 2]));
  assert.deepEqual(cell.value, Array.from({ length: 5000 }, (_, index) => index * 2));
});

test("an object with a then property that is no function is a value like any other", () => {
  const cell = start("return await call()");
  cell.deliver([1, true, { then: "later", __proto__: null }]);
  assert.deepEqual(cell.value, { then: "later" });
});

test("an input that cannot be written rejects nothing and sends nothing: the call throws", () => {
  const cell = start("try { call({ get a() { throw new Error('mine') } }) } catch (error) { text(error) } call('next')");
  assert.deepEqual(cell.said, ["Error: mine"]);
  assert.deepEqual(cell.requests, [{ id: 1, method: "call", input: "next" }]);
});

test("request functions are hidden globals that keep their names", () => {
  const cell = start("return [call.name, search.name, Object.keys(globalThis).includes('call'), typeof call]");
  assert.deepEqual(cell.value, ["call", "search", false, "function"]);
});

test("a request survives a copy of the memory, and each copy is answered by itself", () => {
  const cell = start("let n = 0; n++; const value = await call(); return [n, value, await call()]");
  const copy = cell.copy();
  copy.deliver([1, true, "copy"]);
  copy.deliver([2, true, "c"]);
  cell.deliver([1, true, "original"]);
  cell.deliver([2, true, "o"]);
  assert.deepEqual(copy.value, [1, "copy", "c"]);
  assert.deepEqual(cell.value, [1, "original", "o"]);
  assert.deepEqual(copy.requests.map(({ id }) => id), [2]);
});

test("a rejection that a copy inherited can be handled there", () => {
  const cell = start("const lost = Promise.reject(new Error('lost')); await call(); lost.catch(() => {})");
  const copy = cell.copy();
  assert.equal(copy.unhandledFailure().message, "Error: lost");
  copy.deliver([1, true, null]);
  assert.equal(copy.unhandledFailure(), null);
  assert.equal(cell.unhandledFailure().message, "Error: lost");
});

test("yield_control pauses with its reason and resolves with what the host says", () => {
  const cell = start("text('before'); const value = await yield_control('for a person'); text('after'); return value");
  assert.deepEqual(cell.pauses, [{ id: 1, reason: "for a person" }]);
  assert.deepEqual(cell.said, ["before"]);
  cell.deliver([1, true, "go on"]);
  assert.deepEqual(cell.said, ["before", "after"]);
  assert.equal(cell.value, "go on");
});

test("the reason of yield_control is text of any kind, or nothing", () => {
  const reasons = {
    "": "",
    "undefined": "",
    "null": "null",
    "''": "",
    "'two\\nlines ü \\ud800'": "two\nlines ü \ufffd",
    "0": "0",
    "NaN": "NaN",
    "false": "false",
    "1n": "1",
    "Symbol('s')": "Symbol(s)",
    "['a', { b: 1n }]": '["a",{"b":"1"}]',
    "new Error('x')": "Error: x",
    "function f() {}": "[Function f]",
  };
  const cell = start(Object.keys(reasons).map((reason) => `yield_control(${reason})`).join("; "));
  assert.deepEqual(cell.pauses, Object.values(reasons).map((reason, index) => ({ id: index + 1, reason })));
});
