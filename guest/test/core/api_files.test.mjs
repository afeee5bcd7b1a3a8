/** `API`: declaration files from the shared data, or from the host when it has more. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, startCell, valueOf } from "./cell.mjs";

const api = { "mcp/index.d.ts": "// index", "mcp/github.d.ts": "declare namespace MCP.github { /* “é” */ }", "mcpx/a.d.ts": "", "top.d.ts": "x" };
const COMPLETE = { "": true };
const complete = { api, apiComplete: COMPLETE };
const partial = { api };
const start = (source, shared) => startCell(source, { shared });
const value = (source, shared = complete) => valueOf(source, { shared });
const refusal = (call, shared = complete) => value(`return await ${call}.then(() => "resolved", (error) => [error.name, error.message])`, shared);

test("a file that is there is read without the host, complete or not", () => {
  for (const shared of [complete, partial, { api, apiComplete: {} }]) {
    const cell = start("return await API.read('mcp/github.d.ts')", shared);
    assert.equal(cell.value, api["mcp/github.d.ts"]);
    assert.deepEqual(cell.requests, []);
    assert.deepEqual(cell.lookups, [["api", "mcp/github.d.ts"]]);
  }
});

test("a folder can be complete although others are not", () => {
  const shared = { api, apiComplete: { mcp: true } };
  const cell = start("return (await API.list('mcp')).length", shared);
  assert.equal(cell.value, 2);
  assert.deepEqual(cell.requests, []);
  assert.equal(start("await API.list()", shared).requests.length, 1);
  assert.equal(start("await API.read('tools/core.d.ts')", shared).requests.length, 1);
});

test("an empty file is a file", () => {
  assert.equal(value("return await API.read('mcpx/a.d.ts')"), "");
});

for (const [prefix, paths] of [
  ["", Object.keys(api)],
  ["undefined", Object.keys(api)],
  ["''", Object.keys(api)],
  ["'mcp'", ["mcp/index.d.ts", "mcp/github.d.ts"]],
  ["'mcp/'", ["mcp/index.d.ts", "mcp/github.d.ts"]],
  ["'mcp/github.d.ts'", ["mcp/github.d.ts"]],
  ["'mcp/git'", []],
  ["'constructor'", []],
  ["'mcp/github.d.ts/x'", []],
]) {
  test(`API.list(${prefix}) lists files by whole names`, () => {
    const cell = start(`return await API.list(${prefix})`, complete);
    assert.deepEqual(cell.value, paths.map((path) => ({ path, size: api[path].length })));
    assert.deepEqual(cell.requests, []);
  });
}

test("a list is the program's own, and the files are looked through once", () => {
  const cell = start("const first = await API.list(); first[0].path = 'x'; first.length = 1; return [await API.list('top.d.ts'), (await API.list()).length]", complete);
  assert.deepEqual(cell.value, [[{ path: "top.d.ts", size: 1 }], 4]);
  assert.equal(cell.lookups.filter(([part, key]) => part === "api" && key === undefined).length, 1);
});

test("when there may be more, the host lists, and reads what is not there", () => {
  const cell = start("return [await API.list('mcp/'), await API.list(), await API.read('mcp/new.d.ts')]", partial);
  cell.deliver([1, true, [{ path: "mcp/new.d.ts", size: 3 }]]);
  cell.deliver([2, true, []]);
  cell.deliver([3, true, "new"]);
  assert.deepEqual(cell.requests.map(({ method, input }) => [method, input]), [
    ["api.list", { prefix: "mcp" }],
    ["api.list", { prefix: "" }],
    ["api.read", { path: "mcp/new.d.ts" }],
  ]);
  assert.deepEqual(cell.value, [[{ path: "mcp/new.d.ts", size: 3 }], [], "new"]);
});

test("when all files are there, the host is asked only about a path that does not exist", () => {
  const cell = start("return await API.read('mcp/gitlab.d.ts').catch((error) => error.message)", complete);
  assert.deepEqual(cell.requests.map(({ method, input }) => [method, input.path]), [["api.read", "mcp/gitlab.d.ts"]]);
  cell.deliver([1, false, { message: "did you mean 'mcp/github.d.ts'?" }]);
  assert.equal(cell.value, "did you mean 'mcp/github.d.ts'?");
});

test("without parts there are no files, and the host is asked", () => {
  assert.deepEqual(start("API.list(); API.read('a')", {}).requests.map(({ method }) => method), ["api.list", "api.read"]);
  assert.deepEqual(value("return await API.list()", { apiComplete: COMPLETE }), []);
});

for (const path of ["..", ".", "../a", "a/../b", "a/.", "./a", "/a", "a//b", "//", "/", "a\\b", "\\", "a\0", "\0", "..\\a", "a/..", "mcp/../mcp/index.d.ts"]) {
  for (const [name, shared] of Object.entries({ complete, partial })) {
    test(`${JSON.stringify(path)} is no path, whether the files are ${name} or not`, () => {
      const json = JSON.stringify(path);
      const taken = "takes a path such as mcp/index.d.ts, without . or .. or empty names; it was given: ";
      assert.deepEqual(refusal(`API.read(${json})`, shared), ["Error", `API.read ${taken}${json}`]);
      assert.deepEqual(refusal(`API.list(${json})`, shared), ["Error", `API.list ${taken}${json}`]);
    });
  }
}

test("a path to read has neither an empty name nor a slash behind it", () => {
  assert.equal(refusal("API.read('')")[0], "Error");
  assert.equal(refusal("API.read('mcp/')")[0], "Error");
});

test("dots in names are fine", () => {
  assert.deepEqual(start("for (const path of ['...', '.a', 'a.', 'a/..b', 'a/b..', '.ab']) API.read(path)", partial).requests.map(({ input }) => input.path), [
    "...", ".a", "a.", "a/..b", "a/b..", ".ab",
  ]);
});

for (const [call, message] of [
  ["API.read()", "API.read takes a path as text; it was given: undefined"],
  ["API.read({ path: 'a' })", "API.read takes a path as text; it was given: object"],
  ["API.read(['mcp/index.d.ts'])", "API.read takes a path as text; it was given: array"],
  ["API.list(null)", "API.list takes the start of a path as text, or nothing; it was given: null"],
  ["API.list(1)", "API.list takes the start of a path as text, or nothing; it was given: number"],
]) {
  test(`${call} is rejected and says what it takes`, () => {
    assert.deepEqual(refusal(call), ["TypeError", message]);
    assert.match(failureOf(`\n  await ${call}`, { shared: complete }).stack, /^ {4}at <anonymous> \(cell\.js:2:/);
  });
}

test("names of prototypes and odd text are files only when they are there", () => {
  const names = String.raw`["__proto__", "constructor", "toString", "hasOwnProperty", "api", "\ud800", "🦪"]`;
  assert.equal(start(`${names}.map((path) => API.read(path))`, complete).requests.length, 7);
  const odd = { api: JSON.parse('{"__proto__": "a", "constructor": "bc"}'), apiComplete: COMPLETE };
  assert.deepEqual(value("return [await API.read('__proto__'), await API.read('constructor'), await API.list()]", odd), [
    "a", "bc", [{ path: "__proto__", size: 1 }, { path: "constructor", size: 2 }],
  ]);
});

test("what is no text is no file", () => {
  const odd = { api: { a: 5, b: null, c: "text" }, apiComplete: COMPLETE };
  assert.deepEqual(value("return await API.list()", odd), [{ path: "c", size: 4 }]);
  assert.equal(start("await API.read('a')", odd).requests.length, 1);
});

test("functions work without their object, and API is shown by a short text", () => {
  assert.deepEqual(value("const { list, read } = API; return [(await list('mcp')).length, await read('top.d.ts'), API, list.name]"), [
    2, "x", "[API: see API.list(prefix) and API.read(path)]", "list",
  ]);
});

test("API goes on after a suspension, in another VM", () => {
  const before = start("await API.list(); await yield_control(); return [(await API.list('mcp')).length, await API.read('top.d.ts')]", complete);
  const after = before.copy();
  after.deliver([1, true, null]);
  assert.deepEqual(after.value, [2, "x"]);
});
