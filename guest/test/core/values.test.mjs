/** The one mapping from JavaScript values to JSON: a cell's value, `json` output and the input of requests. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, jsonOf, startCell, valueOf } from "./cell.mjs";

// What the program returns, as an expression, and the JSON text that the host gets for it.
const mapping = {
  "undefined as a whole value is null": ["undefined", "null"],
  "no value at all is null": ["", "null"],
  "null is null": ["null", "null"],
  "booleans are themselves": ["[true, false]", "[true,false]"],
  "finite numbers are themselves": ["[1, -1.5, 1e21, 5e-324, 2 ** 53]", "[1,-1.5,1e+21,5e-324,9007199254740992]"],
  "NaN and the infinities are null": ["[NaN, Infinity, -Infinity]", "[null,null,null]"],
  "negative zero is zero": ["[-0]", "[0]"],
  "strings are themselves": [
    String.raw`["", "ü 😀", "\"\\\n\u0000\u2028"]`,
    JSON.stringify(["", "ü 😀", '"\\\n\u0000\u2028']),
  ],
  "lone surrogates become the replacement character": [String.raw`["a\ud800b", "\udc00"]`, '["a\ufffdb","\ufffd"]'],
  "lone surrogates in names become the replacement character": [String.raw`({ "\ud800": 1 })`, '{"\ufffd":1}'],
  "surrogate pairs are left whole": [String.raw`"\ud83d\ude00"`, '"😀"'],

  "a BigInt is text": ["12345678901234567890n", '"12345678901234567890"'],
  "a BigInt is text at any depth": [
    "({ a: [{ b: -1n }], c: new Map([['d', 2n]]), e: new Set([3n]) })",
    '{"a":[{"b":"-1"}],"c":{"d":"2"},"e":["3"]}',
  ],
  "a named function is a marker": ["function find() {}", '"[Function find]"'],
  "a function without a name is a marker": ["[() => 1]", '["[Function]"]'],
  "classes and methods are markers": ["({ A: class A {}, m() {} })", '{"A":"[Function A]","m":"[Function m]"}'],
  "a function whose name is no text is a marker": [
    "Object.defineProperty(function f() {}, 'name', { value: 1 })",
    '"[Function]"',
  ],
  "a symbol is its description": [
    "[Symbol('s'), Symbol(), Symbol.iterator]",
    '["Symbol(s)","Symbol()","Symbol(Symbol.iterator)"]',
  ],

  "undefined in an object leaves the property out": ["({ a: undefined, b: 1 })", '{"b":1}'],
  "undefined in an array is null": ["[undefined, 1]", "[null,1]"],
  "holes in an array are null": ["[1, , 3, ,]", "[1,null,3,null]"],
  "a sparse array is filled up": ["(() => { const a = []; a[3] = 1; return a; })()", "[null,null,null,1]"],
  "further properties of an array are left out": ["Object.assign([1], { more: 2 })", "[1]"],
  "an object without a prototype is an object": ["({ __proto__: null, a: 1 })", '{"a":1}'],
  "an empty object without a prototype is an object": ["Object.create(null)", "{}"],
  "an empty object is an object": ["[{}, new (class A {})()]", "[{},{}]"],
  "an instance shows its own properties": ["new (class A { a = 1; #b = 2; get c() { return 3; } })()", '{"a":1}'],
  "a property called __proto__ is a property": [
    'JSON.parse(\'{"__proto__":{"a":1},"b":2}\')',
    '{"__proto__":{"a":1},"b":2}',
  ],
  "symbol keys are left out": ["({ [Symbol('s')]: 1, a: 2 })", '{"a":2}'],
  "hidden properties are left out": ["Object.defineProperty({ a: 1 }, 'b', { value: 2 })", '{"a":1}'],
  "inherited properties are left out": ["Object.create({ a: 1 }, { b: { value: 2, enumerable: true } })", '{"b":2}'],
  "integer names come first, as the language has it": ["({ b: 1, 2: 2, 1: 3 })", '{"1":3,"2":2,"b":1}'],
  "getters give their value": ["({ get a() { return 1; } })", '{"a":1}'],
  "the arguments of a function are an object": ["(function () { return arguments; })(1, 2)", '{"0":1,"1":2}'],

  "a cycle is marked in place": [
    "(() => { const a = { b: [1] }; a.b[1] = a; a.self = a; return a; })()",
    '{"b":[1,"[Circular]"],"self":"[Circular]"}',
  ],
  "a cycle through a map and a set is marked in place": [
    "(() => { const m = new Map(), s = new Set([m]); m.set('s', s); return m; })()",
    '{"s":["[Circular]"]}',
  ],
  "a value that occurs twice without a cycle is written twice": [
    "(() => { const a = { x: 1 }; return { b: a, c: [a, a] }; })()",
    '{"b":{"x":1},"c":[{"x":1},{"x":1}]}',
  ],

  "a map with text keys is an object": [
    "new Map([['b', 1], ['a', { c: undefined }], ['u', undefined]])",
    '{"b":1,"a":{},"u":null}',
  ],
  "an empty map is an object": ["new Map()", "{}"],
  "a map with any other key is a list of pairs": [
    "new Map([['a', 1], [2, 'b'], [{ k: 1 }, null], [undefined, undefined]])",
    '[["a",1],[2,"b"],[{"k":1},null],[null,null]]',
  ],
  "a map of one's own class is a map": ["new (class Bag extends Map {})([['a', 1]])", '{"a":1}'],
  "a set is an array": ["new Set([1, 'a', undefined, [2]])", '[1,"a",null,[2]]'],
  "an empty set is an array": ["new Set()", "[]"],
  "a date is ISO text": [
    "[new Date(0), new (class Day extends Date {})(1e12)]",
    '["1970-01-01T00:00:00.000Z","2001-09-09T01:46:40.000Z"]',
  ],
  "an invalid date is null": ["({ at: new Date(NaN) })", '{"at":null}'],
  "a regular expression is its source": ["[/a\\/b/gi]", JSON.stringify(["/a\\/b/gi"])],

  "an error is name and message": [
    "[new Error('a'), new TypeError('b', { cause: 1 })]",
    '[{"name":"Error","message":"a"},{"name":"TypeError","message":"b"}]',
  ],
  "an error of one's own class is name and message": [
    "new (class HttpError extends Error { name = 'HttpError'; status = 404; })('gone')",
    '{"name":"HttpError","message":"gone"}',
  ],
  "an aggregate error is name and message": [
    "new AggregateError([new Error('x')], 'all')",
    '{"name":"AggregateError","message":"all"}',
  ],
  "a DOMException is name and message": [
    "new DOMException('no', 'AbortError')",
    '{"name":"AbortError","message":"no"}',
  ],
  "an error whose name and message are no text has empty ones": [
    "Object.assign(new Error(), { name: 1, message: {} })",
    '{"name":"","message":""}',
  ],

  "typed arrays tell their type and length": [
    "[new Uint8Array(3), new Float64Array(2), new BigInt64Array(1)]",
    '["[Uint8Array(3)]","[Float64Array(2)]","[BigInt64Array(1)]"]',
  ],
  "an ArrayBuffer tells its size": ["new ArrayBuffer(8)", '"[ArrayBuffer(8)]"'],
  "a DataView tells its size": ["new DataView(new ArrayBuffer(8), 2)", '"[DataView(6)]"'],
  "views of a detached buffer are empty": [
    "(() => { const b = new ArrayBuffer(8), views = [b, new Uint8Array(b), new DataView(b)]; b.transfer(); return views; })()",
    '["[ArrayBuffer(0)]","[Uint8Array(0)]","[DataView(0)]"]',
  ],
  "promises, weak collections and iterators tell what they are": [
    "[Promise.resolve(1), new WeakMap(), new WeakSet(), new WeakRef({}), [].values(), new Map().keys()]",
    '["[Promise]","[WeakMap]","[WeakSet]","[WeakRef]","[Array Iterator]","[Map Iterator]"]',
  ],
  "a promise with properties is still a promise": ["[Object.assign(Promise.resolve(), { a: 1 })]", '["[Promise]"]'],
  "generators tell what they are": [
    "[(function* () {})(), (async function* () {})()]",
    '["[Generator]","[AsyncGenerator]"]',
  ],
  "boxed primitives are their value": [
    "[new Number(1), new String('s'), new Boolean(false), Object(2n), new Number(NaN)]",
    '[1,"s",false,"2",null]',
  ],
  "a boxed symbol tells what it is": ["Object(Symbol('s'))", '"[Symbol]"'],
  "a URL is its text": ["({ at: new URL('https://h/p?q=1') })", '{"at":"https://h/p?q=1"}'],
  "URLSearchParams are their text": ["[new URLSearchParams('a=1&b=%20')]", '["a=1&b=+"]'],

  "toJSON has its say": ["({ a: { toJSON: () => ({ b: 1n }) } })", '{"a":{"b":"1"}}'],
  "toJSON may say undefined": ["({ a: { toJSON() {} }, b: [{ toJSON() {} }] })", '{"b":[null]}'],
  "toJSON may return the object itself": ["new (class A { a = 1; toJSON() { return this; } })()", '{"a":1}'],
  "toJSON that is no function is a property": ["({ toJSON: 1 })", '{"toJSON":1}'],
  "toJSON gets its object as this": ["({ n: 2, toJSON() { return this.n; } })", "2"],

  "a proxy of an object is read through its traps": [
    "new Proxy({ a: 1 }, { get: (target, key) => (key === 'a' ? 2 : target[key]) })",
    '{"a":2}',
  ],
  "a proxy of an array is an array": ["new Proxy([1, 2], {})", "[1,2]"],
  "what only claims to be a map is an object": ["({ __proto__: Map.prototype, a: 1 })", '{"a":1}'],
  "what only claims to be a number is an object": ["({ [Symbol.toStringTag]: 'Number', a: 1 })", '{"a":1}'],
};

for (const [sentence, [expression, json]] of Object.entries(mapping)) {
  test(`in the mapping ${sentence}`, () => {
    assert.equal(jsonOf(`return ${expression}`), json);
  });
}

test("a program's value, json output and the input of requests share one mapping", () => {
  const value = "({ d: new Date(0), m: new Map([[1, 2n]]), f() {}, e: new TypeError('x') })";
  const cell = startCell(`const value = ${value}; json(value); call(value); return value`, { functions: ["call"] });
  const expected = { d: "1970-01-01T00:00:00.000Z", m: [[1, "2"]], f: "[Function f]", e: { name: "TypeError", message: "x" } };
  assert.deepEqual(cell.value, expected);
  assert.deepEqual(cell.said, [expected]);
  assert.deepEqual(cell.requests[0].input, expected);
});

const nestings = {
  arrays: "[value]",
  objects: "{ value }",
  maps: "new Map([['value', value]])",
  "maps with other keys": "new Map([[value, 1]])",
  sets: "new Set([value])",
};
const nested = (wrap, levels) => `let value = 1; for (let i = 0; i < ${levels}; i++) value = ${wrap};`;

for (const [what, wrap] of Object.entries(nestings)) {
  // Each pair of a map is a level, too.
  const levels = what === "maps with other keys" ? 120 : 240;

  test(`${what} nest as deep as the limit`, () => {
    assert.equal(jsonOf(`${nested(wrap, levels)} return value`).match(/[\[{]/g).length, 240);
  });

  test(`${what} that nest deeper are refused with an error that names the limit`, () => {
    const { message } = failureOf(`${nested(wrap, levels + 1)} return value`);
    assert.equal(message, "RangeError: value is nested deeper than 240 levels");
  });
}

test("a value nested too deep is refused at the line that shows it", () => {
  const { stack } = failureOf(`${nested("[value]", 257)}\n\n  json(value)`);
  assert.match(stack.match(/cell\.js:\d+:\d+/)[0], /^cell\.js:3:/);
});

test("a program can catch the refusal of a value nested too deep", () => {
  assert.equal(valueOf(`${nested("[value]", 100_000)} try { json(value) } catch (error) { return error.name }`), "RangeError");
});

test("toJSON that never comes to an end is refused", () => {
  const { message } = failureOf("const endless = () => ({ toJSON: endless }); return endless()");
  assert.equal(message, "RangeError: value is nested deeper than 240 levels");
});

const throwing = {
  getters: "({ get a() { throw new Error('mine') } })",
  toJSON: "({ toJSON() { throw new Error('mine') } })",
  "proxy traps": "new Proxy({}, { ownKeys() { throw new Error('mine') } })",
  "string tags": "({ get [Symbol.toStringTag]() { throw new Error('mine') } })",
};

for (const [what, value] of Object.entries(throwing)) {
  test(`what ${what} throw while a value is read is the program's error`, () => {
    assert.equal(valueOf(`try { json(${value}) } catch (error) { return error.message }`), "mine");
    assert.equal(failureOf(`return ${value}`).message, "Error: mine");
  });
}

test("a revoked proxy fails the cell that returns it", () => {
  const { message } = failureOf("const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return { proxy }");
  assert.match(message, /^TypeError: /);
});

test("asking for a promise's text does not count as handling its rejection", () => {
  const cell = startCell("const lost = Promise.reject(new Error('lost')); json([lost]); text(lost); return [lost]");
  assert.deepEqual(cell.value, ["[Promise]"]);
  assert.equal(cell.unhandledFailure().message, "Error: lost");
});

test("what JSON can express comes out as JSON.stringify writes it", () => {
  const random = seededRandom(20_261_115);
  const values = Array.from({ length: 500 }, () => randomJson(random, 5));
  const cell = startCell(`for (const value of JSON.parse(${asSource(values)})) json(value)`);
  assert.equal(cell.outputs.length, values.length);
  for (const [index, value] of values.entries()) {
    assert.equal(cell.outputs[index].content, JSON.stringify(value));
  }
});

test("what JSON.stringify leaves out or replaces by null is treated alike", () => {
  const values = "[[undefined, NaN, -0, , 1], { a: undefined, b: Infinity }, { c: new Date(0), d: [new Date(5)] }, [new String('s'), new Number(3)]]";
  const cell = startCell(`for (const value of ${values}) { json(value); text(JSON.stringify(value)) }`);
  for (let index = 0; index < 8; index += 2) {
    assert.equal(cell.outputs[index].content, cell.outputs[index + 1].content);
  }
});

test("a map of a million characters and ten thousand rows are written in full", () => {
  assert.equal(valueOf("return new Map([['k', 'x'.repeat(1e6)]])").k.length, 1e6);
  const rows = valueOf("return Array.from({ length: 10_000 }, (_, id) => ({ id, name: `row ${id}`, tags: ['a'] }))");
  assert.equal(rows.length, 10_000);
  assert.deepEqual(rows[9_999], { id: 9_999, name: "row 9999", tags: ["a"] });
});

test("a value beyond the memory limit fails the cell with a note of memory", () => {
  const failure = failureOf("const row = 'x'.repeat(1e6); return Array(1000).fill(row)", { memoryLimitBytes: 16 << 20 });
  assert.equal(failure.memory, true);
});

/** xorshift32: the same values in every run. */
function seededRandom(seed) {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

function randomJson(random, depth) {
  const kind = random(depth > 0 ? 8 : 6);
  if (kind === 0) return [null, true, false][random(3)];
  if (kind === 1) return random(1000) - 500;
  if (kind === 2) return (random(2 ** 31) - 2 ** 30) / (random(1000) + 1);
  if (kind <= 5) return randomText(random);
  const size = random(6);
  if (kind === 6) return Array.from({ length: size }, () => randomJson(random, depth - 1));
  return Object.fromEntries(Array.from({ length: size }, () => [randomText(random), randomJson(random, depth - 1)]));
}

function randomText(random) {
  const letters = ["a", "7", " ", '"', "\\", "\n", "\u0001", "\u007f", "é", "\u2028", "漢", "😀", "toJSON", "__proto__", "length"];
  return Array.from({ length: random(4) }, () => letters[random(letters.length)]).join("");
}

/** A string literal that evaluates to the JSON text of `value`. */
function asSource(value) {
  return JSON.stringify(JSON.stringify(value));
}
