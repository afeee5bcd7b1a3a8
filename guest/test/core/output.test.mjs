/** `text`, `json`, `image` and `console`: what a cell says besides its value. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, startCell, valueOf } from "./cell.mjs";

const saidBy = (source) => startCell(source).said;

test("output reaches the host in the order of the calls, each with its kind", () => {
  const cell = startCell("text('a'); json({ b: 1 }); console.log('c'); await null; json('d'); text('e')");
  assert.deepEqual(cell.outputs, [
    { kind: "text", content: "a" },
    { kind: "json", content: '{"b":1}' },
    { kind: "text", content: "c" },
    { kind: "json", content: '"d"' },
    { kind: "text", content: "e" },
  ]);
});

test("output functions return undefined", () => {
  const program = "return [text(1), json(1), console.log(1), console.time(), console.assert(true)].map((value) => value === undefined)";
  assert.deepEqual(valueOf(program), [true, true, true, true, true]);
});

const PNG = { type: "image", mimeType: "image/png", data: "iVBORw0KGgo=" };
const MARKER = { type: "image", mimeType: "image/png", bytes: 8 };
const contents = (cell, wanted) => cell.outputs.filter(({ kind }) => kind === wanted).map(({ content }) => content);
const images = (cell) => contents(cell, "image");

test("an image is passed on as its media type and its base64 text", () => {
  const cell = startCell(`image("data:image/png;base64,${PNG.data}"); image(${JSON.stringify(PNG)}); return image({ mimeType: "a", data: "" }) === undefined`);
  assert.deepEqual(images(cell), [`image/png\n${PNG.data}`, `image/png\n${PNG.data}`, "a\n"]);
  assert.equal(cell.value, true);
});

test("anything else is no image", () => {
  for (const value of ["", "5", "null", "'x'", "'data:image/png,x'", "{}", "{ data: 'x' }", "{ data: 1, mimeType: 'image/png' }", "[]"]) {
    assert.match(failureOf(`image(${value})`).message, /^TypeError: image takes a data: URL/, value);
  }
});

test("images in what the model reads become images, with a marker in their place", () => {
  const result = { content: [PNG, { type: "text", text: "x" }], more: { deep: [PNG] } };
  const shown = { content: [MARKER, { type: "text", text: "x" }], more: { deep: [MARKER] } };
  const cell = startCell(`const result = ${JSON.stringify(result)}; json(result); text(result); console.log("%s", result); return result`);
  assert.deepEqual(cell.value, shown);
  assert.equal(images(cell).length, 8);
  const texts = [...contents(cell, "json"), ...contents(cell, "text")];
  assert.deepEqual(texts.map((text) => JSON.parse(text)), [shown, shown, shown]);
});

test("images in the input of a request stay in it", () => {
  const program = `send(${JSON.stringify(PNG)}); send({ toJSON() { json({ ...${JSON.stringify(PNG)} }); return ${JSON.stringify(PNG)} } }); return { toJSON() { send(${JSON.stringify(PNG)}); return ${JSON.stringify(PNG)} } }`;
  const cell = startCell(program, { functions: ["send"] });
  assert.deepEqual(cell.requests.map(({ input }) => input), [PNG, PNG, PNG]);
  assert.deepEqual(cell.value, MARKER);
});

test("output before an error is not lost", () => {
  const cell = startCell("text('before'); throw new Error('x')");
  assert.deepEqual(cell.said, ["before"]);
  assert.equal(cell.failed.length, 1);
});

const texts = {
  "a string as it is": ["'a \"b\" \\\\ ü'", 'a "b" \\ ü'],
  "lone surrogates as the replacement character": ["'a\\ud800'", "a\ufffd"],
  "undefined by its name": ["undefined", "undefined"],
  "nothing at all like undefined": ["", "undefined"],
  "null by its name": ["null", "null"],
  "booleans by their name": ["true", "true"],
  "numbers that JSON lacks by their name": ["NaN", "NaN"],
  "infinity by its name": ["-Infinity", "-Infinity"],
  "numbers as the language writes them": ["1e21", "1e+21"],
  "a BigInt without its suffix": ["10n", "10"],
  "a symbol by its description": ["Symbol('s')", "Symbol(s)"],
  "a function by a marker without quotes": ["function f() {}", "[Function f]"],
  "an error as name and message": ["new TypeError('no')", "TypeError: no"],
  "an error without a message as its name": ["new RangeError()", "RangeError"],
  "an error without a name as its message": ["Object.assign(new Error('only'), { name: '' })", "only"],
  "an error that hides its name and message as what is left": [
    "Object.defineProperty(new Error('m'), 'name', { get() { throw 1 } })",
    "m",
  ],
  "a DOMException as name and message": ["new DOMException('stop', 'AbortError')", "AbortError: stop"],
  "an object as JSON": ["({ a: [1n] })", '{"a":["1"]}'],
  "a map as JSON": ["new Map([['a', 1]])", '{"a":1}'],
  "a date without quotes": ["new Date(0)", "1970-01-01T00:00:00.000Z"],
  "an invalid date as null": ["new Date(NaN)", "null"],
  "a URL without quotes": ["new URL('https://h/\"')", "https://h/%22"],
  "search parameters without quotes": ["new URLSearchParams('a=1')", "a=1"],
  "a boxed string without quotes": ["new String('s')", "s"],
  "text from toJSON without quotes": ["({ toJSON: () => 'say \"s\"' })", 'say "s"'],
  "a regular expression by its source": ["/a\\d/g", "/a\\d/g"],
  "a typed array by a marker without quotes": ["new Uint8Array(2)", "[Uint8Array(2)]"],
  "a promise by a marker without quotes": ["Promise.resolve()", "[Promise]"],
};

for (const [sentence, [expression, expected]] of Object.entries(texts)) {
  test(`text shows ${sentence}`, () => {
    assert.deepEqual(saidBy(`text(${expression})`), [expected]);
    assert.deepEqual(saidBy(`console.log(${expression || "undefined"})`), [expected]);
  });
}

test("json writes undefined as null", () => {
  assert.deepEqual(startCell("json(undefined); json()").outputs, [
    { kind: "json", content: "null" },
    { kind: "json", content: "null" },
  ]);
});

const lines = {
  "no arguments give an empty line": ["", ""],
  "arguments are separated by spaces": ["'a', 1, { b: 2 }, [3], undefined, null", 'a 1 {"b":2} [3] undefined null'],
  "%s, %d, %i, %f, %j, %o and %O take one argument each": [
    "'%s %d %i %f %j %o %O', 'a', 1, 2, 0.5, { b: 1 }, [2], {}",
    'a 1 2 0.5 {"b":1} [2] {}',
  ],
  "%c swallows its style": ["'%cRed%c plain', 'color: red', '', 1", "Red plain 1"],
  "%% is a percent sign when there are arguments": ["'100%% of %s', 'x'", "100% of x"],
  "a template alone is left as it is": ["'100%% %s %c'", "100%% %s %c"],
  "arguments beyond the placeholders follow": ["'%s!', 'a', 'b'", "a! b"],
  "placeholders without arguments stay": ["'%s %s', 'a'", "a %s"],
  "unknown placeholders stay": ["'%x %', 'a'", "%x % a"],
  "a percent sign before a placeholder stays": ["'%x%s% %s', 'a', 'b'", "%xa% b"],
  "percent signs pair up from the left": ["'%%s %%%s %%', 'a'", "%s %a %"],
  "%% is a percent sign after the last argument too": ["'%s%% %s %c %%', 'a'", "a% %s %c %"],
  "the text around placeholders is kept": ["'ä%s€%sü', '😀', 'b'", "ä😀€bü"],
  "placeholders in later arguments stay": ["'a', '%s', 'b'", "a %s b"],
  "placeholders inside a filled-in text stay": ["'%s %s', '%s', 'b'", "%s b"],
};

for (const [sentence, [args, expected]] of Object.entries(lines)) {
  test(`in console.log ${sentence}`, () => {
    assert.deepEqual(saidBy(`console.log(${args})`), [expected]);
  });
}

test("console.log takes no steps for the characters of a long template", () => {
  const [a, b] = ["a", "b"].map((letter) => letter.repeat(1 << 20));
  const plain = startCell("console.log('a'.repeat(1 << 20), 'b'.repeat(1 << 20))");
  assert.ok(plain.said[0] === `${a} ${b}`);
  assert.equal(plain.interrupts, 0);
  const filled = startCell("const a = 'a'.repeat(1 << 20); console.log(a + '%s' + a + '%%', 'b'.repeat(1 << 20))");
  assert.ok(filled.said[0] === `${a}${b}${a}%`);
  assert.equal(filled.interrupts, 0);
});

test("twice as many placeholders take twice as many steps", () => {
  const stepsFor = (count) => {
    const cell = startCell(`console.log("%%%x".repeat(${count}), 1)`);
    assert.ok(cell.said[0] === `${"%%x".repeat(count)} 1`);
    return cell.interrupts;
  };
  const [once, twice] = [stepsFor(50_000), stepsFor(100_000)];
  assert.ok(once > 50 && Math.abs(twice - 2 * once) <= 2, `${once} and ${twice}`);
});

test("a template that ends in a percent sign asks nothing of String.prototype", () => {
  const program = "let asked = 0; Object.defineProperty(String.prototype, 1, { get() { asked++; return 's' } }); console.log('%', 'a'); return asked";
  const cell = startCell(program);
  assert.deepEqual(cell.said, ["% a"]);
  assert.equal(cell.value, 0);
});

const speaking = ["log", "info", "warn", "error", "debug", "trace", "dir", "dirxml", "table", "group", "groupCollapsed"];
const silent = ["groupEnd", "time", "timeEnd", "timeLog", "count", "countReset", "clear"];

test("every speaking method of console becomes text", () => {
  for (const method of speaking) {
    assert.deepEqual(startCell(`console.${method}('a', 1)`).outputs, [{ kind: "text", content: "a 1" }], method);
  }
});

test("the other methods of console say nothing", () => {
  for (const method of silent) assert.deepEqual(saidBy(`console.${method}('a', 1)`), [], method);
});

test("console.assert speaks only of what is false", () => {
  assert.deepEqual(saidBy("console.assert(1, 'no'); console.assert(0); console.assert('', 'a', { b: 1 })"), [
    "Assertion failed",
    'Assertion failed a {"b":1}',
  ]);
});

test("no method of console throws, whatever it is given", () => {
  const cell = startCell(`
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    let deep = 1;
    for (let i = 0; i < 300; i++) deep = [deep];
    const hostile = [
      proxy, deep, Symbol("s"), Object.create(null), { get a() { throw 1 } }, { toJSON() { throw 1 } },
      { get [Symbol.toStringTag]() { throw 1 } }, { [Symbol.toPrimitive]() { throw 1 } },
      new Proxy({}, { get() { throw 1 } }), new Proxy(function () {}, { get() { throw 1 } }),
      Object.defineProperty(new Error("x"), "message", { get() { throw 1 } }),
    ];
    const thrown = [];
    for (const method of Object.keys(console)) {
      for (const value of hostile) {
        for (const args of [[value], ["%s %d %o %c", value, value, value, value], [false, value], []]) {
          try { console[method](...args) } catch (error) { thrown.push(method) }
        }
      }
    }
    return thrown`);
  assert.deepEqual(cell.value, []);
  assert.ok(cell.said.includes("a value that cannot be shown"));
});

test("methods of console work without their object", () => {
  assert.deepEqual(saidBy("const { log, assert } = console; log('a'); [1].forEach(log); assert(false)"), ["a", "1 0 [1]", "Assertion failed"]);
});

test("what text and console.error throw of a value is the program's to catch, and only text throws", () => {
  assert.deepEqual(
    saidBy("const bad = { get a() { throw new Error('mine') } }; try { text(bad) } catch (error) { text(error) } console.error(bad)"),
    ["Error: mine", "a value that cannot be shown"],
  );
});

test("a program may replace the output functions for itself", () => {
  const cell = startCell("const said = []; globalThis.text = (value) => said.push(value); text('a'); console.log('b'); return said");
  assert.deepEqual(cell.value, ["a"]);
  assert.deepEqual(cell.said, ["b"]);
});

test("output functions are hidden, writable, configurable globals that keep their names", () => {
  const names = ["text", "json", "console", "yield_control", "require", "setTimeout", "setInterval", "clearTimeout", "clearInterval"];
  const program = `return ${JSON.stringify(names)}.map((name) => {
    const { value, enumerable, writable, configurable } = Object.getOwnPropertyDescriptor(globalThis, name);
    return [typeof value === "function" ? value.name : name, enumerable, writable, configurable];
  })`;
  assert.deepEqual(valueOf(program), names.map((name) => [name, false, true, true]));
});
