/** Where an error happened, in the program's own lines and columns; and what else the host learns of a failure. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, startCell, valueOf } from "./cell.mjs";

/** The first place in the program that a stack names, as "line:column". */
const placeIn = (stack) => stack.match(/cell\.js:(\d+:\d+)/)?.[1];

const runtimeErrors = {
  "on the first line": ["missing.call()", "1:1"],
  "on the first line, further right": ["const a = 1; missing.call()", "1:14"],
  "on a later line": ["const a = 1;\n\n  missing.call()", "3:3"],
  "on the last line, after a comment": ["// one\n/* two\nthree */ missing()", "3:10"],
  "after CRLF line ends": ["const a = 1;\r\n\r\n missing()", "3:2"],
  "after a line with characters outside ASCII": ["'ü😀';\n missing()", "2:2"],
  "in a function": ["const f = () => {\n  return missing;\n};\nf()", "2:10"],
  "in a nested async function": [
    "async function outer() {\n  await null;\n  await inner();\n}\nasync function inner() {\n  await null;\n    missing();\n}\nawait outer()",
    "7:5",
  ],
  "in a promise's reaction": ["await Promise.resolve().then(() => {\n  missing() })", "2:3"],
  "in a generator": ["const g = (function* () {\n yield 1;\n  missing();\n})();\n[...g]", "3:3"],
  "in a getter that json reads": ["json({ get a() {\n  return missing;\n} })", "2:10"],
  "in a class": ["class A {\n  constructor() {\n    this.a.b;\n  }\n}\nnew A()", "3:5"],
};

for (const [where, [source, place]] of Object.entries(runtimeErrors)) {
  test(`a runtime error ${where} names its line and column`, () => {
    const { message, stack } = failureOf(source);
    assert.match(message, /^(ReferenceError|TypeError): /);
    assert.equal(placeIn(stack), place);
  });
}

const syntaxErrors = {
  "on the first line": ["let x = ;", "1:9"],
  "on a later line": ["let a = 1;\nlet b = 2;\n  let c = = 3;", "3:11"],
  "in a nested function": ["function f() {\n  if (;) {}\n}", "2:7"],
  "after a line with characters outside ASCII": ["'ü😀';\n let = = 1", "2:8"],
};

for (const [where, [source, place]] of Object.entries(syntaxErrors)) {
  test(`a syntax error ${where} names its line and column`, () => {
    const { message, stack } = failureOf(source);
    assert.match(message, /^SyntaxError: /);
    assert.equal(placeIn(stack), place);
  });
}

test("a program without its last bracket fails with a syntax error behind its last line at most", () => {
  const { message, stack } = failureOf("if (true) {\n  text(1)");
  assert.match(message, /^SyntaxError: /);
  assert.ok(Number(placeIn(stack).split(":")[0]) <= 3, stack);
});

test("a program may end in a comment", () => {
  assert.equal(valueOf("return 1 // the end"), 1);
});

test("an error that the guest's own functions throw names the line that called them", () => {
  for (const call of ["require('fs')", "setTimeout('text(1)')", "crypto.getRandomValues(1)"]) {
    assert.equal(placeIn(failureOf(`const a = 1;\n${call}`).stack).split(":")[0], "2", call);
  }
});

test("the stack that the program itself reads has the same lines", () => {
  assert.equal(placeIn(valueOf("\ntry { missing() } catch (error) { return error.stack }")), "2:7");
});

test("an error in a rejected promise nobody handles names its line", () => {
  const cell = startCell("text('a');\n(async () => {\n  missing();\n})();\nreturn 1");
  const failure = cell.unhandledFailure();
  assert.equal(failure.message, "ReferenceError: missing is not defined");
  assert.equal(placeIn(failure.stack), "3:3");
});

test("an error after an answer from the host names its line", () => {
  const cell = startCell("const value = await call();\n\nvalue.a.b", { functions: ["call"] });
  cell.deliver([1, true, {}]);
  assert.equal(placeIn(cell.failed[0].stack).split(":")[0], "3");
});

const thrown = {
  "an error of one's own class": ["class E extends Error { name = 'E' } throw new E('m')", "E: m"],
  "an error without a message": ["throw new TypeError()", "TypeError"],
  "a DOMException": ["throw new DOMException('stop', 'AbortError')", "AbortError: stop"],
  "a string": ["throw 'text'", "thrown: text"],
  "a number": ["throw 1", "thrown: 1"],
  "undefined": ["throw undefined", "thrown: undefined"],
  "null": ["throw null", "thrown: null"],
  "a symbol": ["throw Symbol('s')", "thrown: Symbol(s)"],
  "an object": ["throw { code: 1n }", 'thrown: {"code":"1"}'],
  "a function": ["throw function f() {}", "thrown: [Function f]"],
  "lone surrogates": ["throw new Error('\\ud800')", "Error: \ufffd"],
  "an object that cannot be shown": ["throw { get a() { throw 1 } }", "thrown: a value that cannot be shown"],
  "an object whose tag cannot be read": [
    "throw { get [Symbol.toStringTag]() { throw 1 } }",
    "thrown: a value that cannot be shown",
  ],
  "a revoked proxy": [
    "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy",
    "thrown: a value that cannot be shown",
  ],
  "a proxy that throws itself": [
    "const p = new Proxy({}, { get() { throw p } }); throw p",
    "thrown: a value that cannot be shown",
  ],
  "an error whose properties throw": [
    "const e = new Error('m'); for (const k of ['name', 'message', 'stack']) Object.defineProperty(e, k, { get() { throw e } }); throw e",
    "",
  ],
};

for (const [what, [source, message]] of Object.entries(thrown)) {
  test(`a program that throws ${what} fails, and its failure says so`, () => {
    const cell = startCell(source);
    assert.deepEqual(cell.failed.map((failure) => failure.message), [message]);
    assert.deepEqual(Object.keys(cell.failed[0]), ["message", "stack", "memory", "modules", "host"]);
    assert.equal(typeof cell.failed[0].stack, "string");
    assert.deepEqual(cell.completed, []);
    assert.equal(cell.unhandledFailure(), null);
  });

  test(`a promise that rejects with ${what} has a failure the host can read`, () => {
    const cell = startCell(`(async () => { ${source} })(); return 1`);
    assert.equal(cell.unhandledFailure().message, message);
  });
}

test("module access fails with its own mark, however it is tried", () => {
  for (const source of ["await import('fs')", "require('fs')", "await import('./x.js')"]) {
    const { message, modules } = failureOf(source);
    assert.match(message, /^Error: module access is disabled in cells: /);
    assert.equal(modules, true);
  }
  assert.equal(failureOf("throw new Error('other')").modules, false);
  assert.equal(failureOf("throw new Error('module access is disabled in cells: x')").modules, false);
});

test("a program cannot claim that it ran out of memory", () => {
  assert.equal(failureOf("'x'.repeat(1e9)").memory, true);
  for (const source of [
    "throw Object.assign(new Error('out of memory'), { name: 'InternalError' })",
    "throw 'null'",
    "throw { name: 'InternalError', message: 'out of memory' }",
  ]) {
    assert.equal(failureOf(source).memory, false, source);
  }
  assert.match(failureOf("throw new InternalError('out of memory')").message, /^ReferenceError/);
  assert.equal(failureOf("throw null").memory, null);
});

test("the word import in a string, a comment or a name is fine", () => {
  assert.equal(valueOf("/* import x from 'y' */ const imports = \"import 'z'\"; return imports"), "import 'z'");
});

test("a program out of memory fails with its own mark", () => {
  const source = "const kept = []; for (;;) kept.push('x'.repeat(1e5) + kept.length)";
  const { message, memory } = failureOf(source, { memoryLimitBytes: 8 << 20 });
  assert.equal(memory, true);
  assert.match(message, /out of memory/);
  assert.equal(failureOf("throw new Error('out of memory')").memory, false);
});

test("a recursion without end is an error of the program, which it can catch", () => {
  assert.equal(failureOf("const f = () => f();\nf()").message, "RangeError: Maximum call stack size exceeded");
  assert.equal(valueOf("const f = () => f(); try { f() } catch (error) { return error.name }"), "RangeError");
});

test("a program that fails or completes is told to the host once", () => {
  const cell = startCell("setTimeout(() => text('after'), 1); return 1");
  cell.advance(1);
  assert.deepEqual(cell.completed, ["1"]);
  assert.deepEqual(cell.failed, []);
  assert.deepEqual(cell.said, ["after"]);
});
