/** Namespaces: made from their description when touched, called by path, as globals and under `namespaces`. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { startCell, valueOf } from "./cell.mjs";

const Issues = {
  o: {
    list: { f: true },
    labels: { o: { add: { f: true } } },
    states: { v: ["open", { deep: null }] },
    steps: { a: [{ f: true }, { v: 2 }] },
    version: { v: 3 },
  },
};
const shared = { globals: ["Issues", "ping"], namespaces: { Issues, ping: { f: true } } };
const start = (source, options) => startCell(source, { shared, ...options });
const value = (source, options) => valueOf(source, { shared, ...options });

test("a namespace is a plain object of data and functions", () => {
  assert.deepEqual(value("return [Issues, Object.getPrototypeOf(Issues) === Object.prototype, Array.isArray(Issues.steps), Object.keys(Issues)]"), [
    { list: "[Function list]", labels: { add: "[Function add]" }, states: ["open", { deep: null }], steps: ["[Function 0]", 2], version: 3 },
    true, true, ["list", "labels", "states", "steps", "version"],
  ]);
});

test("a call names the namespace, the path and all arguments", () => {
  const cell = start("const { list } = Issues; list(); list({ a: 1n }, undefined, [new Date(0)]); Issues.labels.add(1); Issues.steps[0](); ping('x')");
  assert.deepEqual(cell.requests.map(({ method, input }) => [method, input]), [
    ["namespace", { namespace: "Issues", path: ["list"], args: [] }],
    ["namespace", { namespace: "Issues", path: ["list"], args: [{ a: "1" }, null, ["1970-01-01T00:00:00.000Z"]] }],
    ["namespace", { namespace: "Issues", path: ["labels", "add"], args: [1] }],
    ["namespace", { namespace: "Issues", path: ["steps", "0"], args: [] }],
    ["namespace", { namespace: "ping", path: [], args: ["x"] }],
  ]);
});

test("a call resolves to its answer and rejects with the host's error", () => {
  const cell = start("return [await Issues.list(), await ping().catch((error) => [error.message, error.code])]");
  cell.deliver([1, true, [{ id: 7 }]]);
  cell.deliver([2, false, { message: "no", code: "denied" }]);
  assert.deepEqual(cell.value, [[{ id: 7 }], ["no", "denied"]]);
});

test("an error that nobody caught points at the call", () => {
  const cell = start("\n  await Issues.list()");
  cell.deliver([1, false, { name: "ToolError", message: "no" }]);
  assert.deepEqual([cell.failed[0].message, cell.failed[0].host], ["ToolError: no", true]);
  assert.match(cell.failed[0].stack, /^ {4}at <anonymous> \(cell\.js:2:/);
});

test("the global and the member of namespaces are one object, made once", () => {
  const cell = start("Issues.mark = 1; return [namespaces.Issues === Issues, namespaces.Issues.mark, Object.keys(namespaces), Object.getPrototypeOf(namespaces)]");
  assert.deepEqual(cell.value, [true, 1, ["Issues", "ping"], null]);
  assert.deepEqual(cell.lookups, [["namespaces", "Issues"]]);
});

test("no namespace is made before it is touched", () => {
  assert.deepEqual(start("Object.keys(namespaces); 'Issues' in namespaces; text(namespaces); return 1").lookups, []);
});

test("a program may replace a global of its own, not a member of namespaces", () => {
  assert.deepEqual(value("Issues = 5; return [Issues, namespaces.Issues.version]"), [5, 3]);
  assert.deepEqual(value("'use strict'; const names = []; for (const f of [() => { namespaces.Issues = 1 }, () => { namespaces.x = 1 }, () => { delete namespaces.ping }]) { try { f() } catch (error) { names.push(error.name) } } return names"), [
    "TypeError", "TypeError", "TypeError",
  ]);
});

test("namespaces says what it holds when it is shown", () => {
  assert.equal(value("return namespaces"), "[namespaces: Issues, ping]");
  assert.equal(value("return namespaces", { shared: { globals: [] } }), "[namespaces: none]");
});

test("a namespace without a description is undefined", () => {
  assert.deepEqual(value("return [typeof Gone, namespaces.Gone ?? null]", { shared: { globals: ["Gone"] } }), ["undefined", null]);
});

test("odd names and odd nodes neither break nor reach a prototype", () => {
  const odd = JSON.parse('{"o": {"__proto__": {"f": true}, "constructor": {"v": 1}, "empty": {}, "both": {"v": 1, "f": true}, "other": {"x": 1}}}');
  const cell = start("Odd.__proto__(1); return [Object.keys(Odd), Object.getPrototypeOf(Odd) === Object.prototype, Odd.constructor, typeof Odd.empty, typeof Odd.both, typeof Odd.other]", {
    shared: { globals: ["Odd"], namespaces: { Odd: odd } },
  });
  assert.deepEqual(cell.value, [["__proto__", "constructor", "empty", "both", "other"], true, 1, "undefined", "undefined", "undefined"]);
  assert.deepEqual(cell.requests[0].input, { namespace: "Odd", path: ["__proto__"], args: [1] });
});

test("a description may be as deep as JSON may be", () => {
  let node = { f: true };
  for (let level = 0; level < 120; level++) node = { o: { a: node } };
  const cell = start(`Deep${".a".repeat(120)}()`, { shared: { globals: ["Deep"], namespaces: { Deep: node } } });
  assert.equal(cell.requests[0].input.path.length, 120);
});

test("a function of a namespace is no class and keeps its name", () => {
  assert.deepEqual(value("try { new Issues.list() } catch (error) { return [error.name, Issues.list.name, typeof Issues.list.prototype, ping.name] }"), [
    "TypeError", "list", "undefined", "ping",
  ]);
});

test("namespaces go on after a suspension, in another VM", () => {
  const before = start("const { list } = Issues; await yield_control(); list('old'); ping('new'); return namespaces.Issues === Issues");
  const after = before.copy();
  after.deliver([1, true, null]);
  assert.equal(after.value, true);
  assert.deepEqual(after.requests.map(({ input }) => [input.namespace, input.args]), [["Issues", ["old"]], ["ping", ["new"]]]);
});

test("a namespace that stands alone is called as any other", () => {
  const cell = start("return await Issues.labels.add(1)", { shared: { ...shared, globals: { only: ["Issues"] } } });
  cell.deliver([1, true, "added"]);
  assert.deepEqual(cell.requests.map(({ method, input }) => [method, input]), [
    ["namespace", { namespace: "Issues", path: ["labels", "add"], args: [1] }],
  ]);
  assert.equal(cell.value, "added");
});
