/** `ALL_TOOLS` and `tools`: read when touched, called by requests, and changed by nobody. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, startCell, valueOf } from "./cell.mjs";

const TOOLS = [
  { id: "openclaw:core:web_search", name: "web_search", description: "Search" },
  { id: "openclaw:core:read", name: "read", description: "Read — “quoted”" },
];
const shared = { tools: TOOLS, names: { web_search: "openclaw:core:web_search", read: "openclaw:core:read" }, globals: [] };
const start = (source, options) => startCell(source, { shared, ...options });
const value = (source, options) => valueOf(source, { shared, ...options });
const sent = (cell) => cell.requests.map(({ method, input }) => [method, input]);

test("ALL_TOOLS is a real array of real objects", () => {
  assert.deepEqual(value("return [Array.isArray(ALL_TOOLS), ALL_TOOLS[0].constructor === Object, ALL_TOOLS.map((tool) => tool.name), ALL_TOOLS]"), [
    true, true, ["web_search", "read"], TOOLS,
  ]);
});

test("nothing of the catalog is read before a program touches it", () => {
  assert.deepEqual(start("return 1").lookups, []);
  assert.deepEqual(start("typeof tools; tools.search('x'); tools.call('id'); return 1").lookups, []);
});

test("ALL_TOOLS is fetched once and stays the program's own", () => {
  const cell = start("ALL_TOOLS[0].mark = 1; return [ALL_TOOLS[0].mark, ALL_TOOLS === ALL_TOOLS, globalThis.ALL_TOOLS === ALL_TOOLS]");
  assert.deepEqual(cell.value, [1, true, true]);
  assert.deepEqual(cell.lookups, [["tools"]]);
});

test("a program that assigns ALL_TOOLS before or after reading it has its own value", () => {
  assert.deepEqual(value("ALL_TOOLS = 5; return [ALL_TOOLS, Object.getOwnPropertyDescriptor(globalThis, 'ALL_TOOLS')]"), [
    5, { value: 5, writable: true, enumerable: false, configurable: true },
  ]);
  assert.equal(value("'use strict'; ALL_TOOLS.length; ALL_TOOLS = 6; return ALL_TOOLS"), 6);
});

test("a program that froze its globals still reads the catalog", () => {
  assert.deepEqual(value("Object.freeze(globalThis); return [ALL_TOOLS.length, ALL_TOOLS === ALL_TOOLS, typeof tools.read]"), [2, true, "function"]);
});

test("a catalog without parts is empty, not broken", () => {
  assert.deepEqual(value("return [ALL_TOOLS, Object.keys(tools), tools.read ?? null]", { shared: {} }), [[], ["search", "describe", "call"], null]);
});

test("without shared data there is no catalog", () => {
  assert.deepEqual(valueOf("return [typeof tools, typeof ALL_TOOLS, typeof namespaces]"), ["undefined", "undefined", "undefined"]);
});

test("the helpers send requests and resolve to the answers", () => {
  const cell = start("return [await tools.search('mail', { limit: 3 }), await tools.describe('a'), await tools.call('a', { b: 1n })]");
  cell.deliver([1, true, [{ id: "a" }]]);
  cell.deliver([2, true, { id: "a", parameters: {} }]);
  cell.deliver([3, true, "sent"]);
  assert.deepEqual(sent(cell), [
    ["tools.search", { query: "mail", limit: 3 }],
    ["tools.describe", { id: "a" }],
    ["tools.call", { id: "a", input: { b: "1" } }],
  ]);
  assert.deepEqual(cell.value, [[{ id: "a" }], { id: "a", parameters: {} }, "sent"]);
});

test("an input that is left out is an empty object, and null stays null", () => {
  const cell = start("tools.call('a'); tools.call('a', undefined); tools.call('a', null); tools.read(); tools.read([1]); tools.search('q', null)");
  assert.deepEqual(sent(cell), [
    ["tools.call", { id: "a", input: {} }],
    ["tools.call", { id: "a", input: {} }],
    ["tools.call", { id: "a", input: null }],
    ["tools.call", { id: "openclaw:core:read", input: {} }],
    ["tools.call", { id: "openclaw:core:read", input: [1] }],
    ["tools.search", { query: "q" }],
  ]);
});

test("helpers work without their object", () => {
  assert.deepEqual(sent(start("const { search, call, read } = tools; search('q'); call('a'); read({ x: 1 })")), [
    ["tools.search", { query: "q" }],
    ["tools.call", { id: "a", input: {} }],
    ["tools.call", { id: "openclaw:core:read", input: { x: 1 } }],
  ]);
});

for (const [call, message] of [
  ["tools.search()", "tools.search takes a query as text; it was given: undefined"],
  ["tools.search({ query: 'x' })", "tools.search takes a query as text; it was given: object"],
  ["tools.describe(null)", "tools.describe takes the id of a tool as text; it was given: null"],
  ["tools.call([1])", "tools.call takes the id of a tool as text; it was given: array"],
  ["tools.call(Symbol.iterator)", "tools.call takes the id of a tool as text; it was given: symbol"],
]) {
  test(`${call} is rejected, sends nothing and says what it takes`, () => {
    const cell = start(`return await ${call}.catch((error) => [error instanceof TypeError, error.message])`);
    assert.deepEqual(cell.value, [true, message]);
    assert.deepEqual(cell.requests, []);
    assert.match(failureOf(`\n  await ${call}`, { shared }).stack, /^ {4}at <anonymous> \(cell\.js:2:/);
  });
}

test("a tool's function is made once, by one look-up", () => {
  const cell = start("return [tools.read === tools.read, tools.read.name, tools.read.length, typeof tools.read.prototype]");
  assert.deepEqual(cell.value, [true, "read", 1, "undefined"]);
  assert.deepEqual(cell.lookups, [["names", "read"]]);
});

test("keys, entries and membership show helpers and tools alike", () => {
  const source = `
    const own = Object.getOwnPropertyDescriptor(tools, "read");
    return [
      Object.keys(tools), Reflect.ownKeys(tools), Object.entries(tools).map(([name, tool]) => tool === tools[name]),
      "read" in tools, "search" in tools, "missing" in tools, Symbol.iterator in tools, Object.hasOwn(tools, "read"),
      own.value === tools.read, own.writable, own.enumerable, own.configurable, Object.getOwnPropertyDescriptor(tools, "missing") ?? null,
    ]`;
  const names = ["search", "describe", "call", "web_search", "read"];
  assert.deepEqual(value(source), [names, names, [true, true, true, true, true], true, true, false, false, true, true, false, true, true, null]);
});

test("listing the names fetches them once, whatever is read afterwards", () => {
  const cell = start("Object.keys(tools); Object.keys(tools); tools.read; tools.missing; 'web_search' in tools; return 1");
  assert.deepEqual(cell.lookups, [["names"]]);
});

for (const [what, change] of Object.entries({
  "assign a helper": "tools.search = 1",
  "assign a new name": "tools.mine = 1",
  "define a property": "Object.defineProperty(tools, 'x', { value: 1 })",
  "delete a tool": "delete tools.read",
  "freeze it": "Object.freeze(tools)",
  "give it a prototype": "Object.setPrototypeOf(tools, Array.prototype)",
  "set through an heir": "Object.create(tools).search = 1",
})) {
  for (const mode of ["", "'use strict';"]) {
    test(`a program cannot ${what}${mode && ", in strict mode"}`, () => {
      assert.deepEqual(value(`${mode} try { ${change} } catch (error) { return [error.name, error.message, typeof tools.search, typeof tools.read] }`), [
        "TypeError", "tools is read-only", "function", "function",
      ]);
    });
  }
}

test("nothing comes from a prototype, and tools has none", () => {
  assert.deepEqual(
    value(`
      Object.prototype.polluted = () => 1;
      return [
        Object.getPrototypeOf(tools), Reflect.setPrototypeOf(tools, null), Object.isExtensible(tools),
        ["constructor", "__proto__", "prototype", "toString", "valueOf", "hasOwnProperty", "toJSON", "then", "inspect", "polluted", "", "0"]
          .filter((name) => tools[name] !== undefined || name in tools),
        [Symbol.toPrimitive, Symbol.toStringTag, Symbol.iterator, Symbol.asyncIterator].filter((name) => tools[name] !== undefined).length,
      ]`),
    [null, true, true, [], 0],
  );
});

test("names that a tool must not have are not taken from the catalog either", () => {
  const names = { then: "a:then", toJSON: "a:toJSON", search: "a:search", call: "a:call", fine: "a:fine", odd: 5, "__proto__x": "a:p" };
  const cell = start("await tools; tools.search('q'); json(tools); return [Object.keys(tools), typeof tools.then, typeof tools.toJSON, typeof tools.odd]", { shared: { names } });
  assert.deepEqual(cell.value, [["search", "describe", "call", "fine", "__proto__x"], "undefined", "undefined", "undefined"]);
  assert.deepEqual(sent(cell), [["tools.search", { query: "q" }]]);
});

test("a member that the catalog really calls __proto__ is a tool like any other", () => {
  const names = JSON.parse('{"__proto__": "a:b", "constructor": "a:c"}');
  const cell = start("tools.__proto__(); tools.constructor(); return Object.keys(tools)", { shared: { names } });
  assert.deepEqual(cell.value, ["search", "describe", "call", "__proto__", "constructor"]);
  assert.deepEqual(cell.requests.map(({ input }) => input.id), ["a:b", "a:c"]);
});

test("odd names are looked up as they are and found nowhere", () => {
  assert.deepEqual(value(String.raw`return ["\ud800", "\0", "x".repeat(1e6), "a\nb", "names", "🦪"].filter((name) => tools[name] !== undefined)`), []);
});

test("tools is shown by a short text, alone, in place and as text", () => {
  const marker = "[tools: see ALL_TOOLS and tools.search(query)]";
  const cell = start("text(tools); json(tools); console.log('%s', tools); return { tools, list: [tools] }");
  assert.deepEqual(cell.said, [marker, marker, marker]);
  assert.deepEqual(cell.value, { tools: marker, list: [marker] });
  assert.deepEqual(cell.lookups, []);
  assert.equal(value("return tools"), marker);
});

test("calling a tool that does not exist says so and how to find one", () => {
  const failure = failureOf("const x = 1;\nawait tools.send_mail({})", { shared });
  assert.equal(failure.message, "TypeError: not a function (tools.send_mail does not exist; find tools with tools.search(query))");
  assert.match(failure.stack, /cell\.js:2:/);
});

test("the nearest tools are named", () => {
  const hint = (name, names) => failureOf(`await tools.${name}({})`, { shared: { ...shared, names } }).message;
  const nearest = (text) => `TypeError: not a function (${text}; find tools with tools.search(query))`;
  assert.equal(hint("web_serach", shared.names), nearest("tools.web_serach does not exist; nearest: tools.web_search"));
  assert.equal(hint("webSearch", shared.names), nearest("tools.webSearch does not exist; nearest: tools.web_search"));
  assert.equal(hint("serch", shared.names), nearest("tools.serch does not exist; nearest: tools.search"));
  assert.equal(hint("issue", { list_issues: "a", close_issue: "b", open_issue: "c", an_issue: "d", other: "e" }),
    nearest("tools.issue does not exist; nearest: tools.list_issues, tools.close_issue, tools.open_issue"));
  assert.equal(hint("x", { y: "a" }), nearest("tools.x does not exist; nearest: tools.y"));
  const many = Object.fromEntries(Array.from({ length: 20_000 }, (_, index) => [`get_thing_${index}`, "id"]));
  assert.match(hint("get_thng_7", many), /nearest: tools\.get_thing_7;/);
});

test("a program that catches the error reads the hint, too", () => {
  const source = "try {\n await tools.raed({}) } catch (error) { return [error.message, error.stack.split('\\n')[0], error instanceof TypeError, Object.keys(error)] }";
  const hint = "not a function (tools.raed does not exist; nearest: tools.read; find tools with tools.search(query))";
  assert.deepEqual(value(source), [hint, "    at <anonymous> (cell.js:2:14)", true, []]);
  // Only the error that comes from it, and only once.
  const twice = "const messages = []; tools.raed; for (const f of [() => null.x, () => (1)(), () => (1)()]) try { f() } catch (error) { messages.push(error.message) } return messages";
  assert.deepEqual(value(twice), ["cannot read property 'x' of null", hint, "not a function"]);
});

test("stacks after a missing member are those of the engine", () => {
  const source = `function inner() { try { null.x } catch (error) { return error.stack } }
    const stacks = () => [inner(), [1].map(() => new Error("a").stack)[0], new TypeError("b").stack];
    const pairs = [];
    for (const miss of [() => {}, () => tools.missing]) { miss(); pairs.push(stacks()) }
    return pairs`;
  const [before, after] = value(source);
  assert.deepEqual(after, before);
  assert.match(before[1], /at map \(native\)/);
});

test("other failures get no such hint", () => {
  assert.equal(failureOf("tools.missing; null.x", { shared }).message, "TypeError: cannot read property 'x' of null");
  assert.equal(failureOf("await tools; const f = 1; f()", { shared }).message, "TypeError: not a function");
  assert.equal(failureOf("tools.missing; throw new Error('not a function')", { shared }).message, "Error: not a function");
  assert.equal(failureOf("tools['x'.repeat(1e5)]()", { shared }).message, "TypeError: not a function");
  assert.equal(failureOf("(1)()").message, "TypeError: not a function");
});

test("an error of a tool that nobody caught is told from one of the program", () => {
  const failed = (source) => {
    const cell = start(source);
    cell.deliver([1, false, { name: "ToolError", message: "no", code: "denied", toolId: "t" }]);
    return [cell.failed[0]?.host, cell.unhandledFailure()?.host];
  };
  assert.deepEqual(failed("await tools.read()"), [true, undefined]);
  assert.deepEqual(failed("tools.read(); return 1"), [undefined, true]);
  assert.deepEqual(failed("try { await tools.read() } catch (error) { throw error }"), [true, undefined]);
  assert.deepEqual(failed("try { await tools.read() } catch (error) { throw new Error('mine', { cause: error }) }"), [false, undefined]);
  assert.deepEqual(failed("await tools.read().catch(() => {}); throw Object.assign(new Error('no'), { name: 'ToolError', toolId: 't' })"), [false, undefined]);
});

test("the catalog goes on after a suspension, in another VM", () => {
  const before = start("const mine = tools.read; await yield_control(); mine(); tools.web_search({ q: 1 }); return [ALL_TOOLS.length, tools.read === mine]");
  const after = before.copy();
  after.deliver([1, true, null]);
  assert.deepEqual(after.value, [2, true]);
  assert.deepEqual(sent(after), [
    ["tools.call", { id: "openclaw:core:read", input: {} }],
    ["tools.call", { id: "openclaw:core:web_search", input: { q: 1 } }],
  ]);
});

test("a start does as many steps with ten thousand tools as with ten", () => {
  const interrupts = (count) => {
    const many = Array.from({ length: count }, (_, index) => ({ id: `openclaw:core:tool_${index}`, name: `tool_${index}` }));
    const names = Object.fromEntries(many.map(({ id, name }) => [name, id]));
    const cell = startCell("return 1", { shared: { tools: many, names, globals: [] } });
    return [cell.interrupts, cell.lookups];
  };
  assert.deepEqual(interrupts(10_000), interrupts(10));
});

test("the request of a call is the JSON of its id and its input", () => {
  const source = `
    const inputs = [undefined, null, {}, { i: -0, list: [NaN, 1e21], "\\ud800": "\\udc00" }, { toJSON() {} }, new Map([[1, 2]]), 'text'];
    for (const input of inputs) tools.call('a"\\ud800', input);
    for (let index = 0; index < 300; index++) tools.call("id" + index, { ["name" + index]: index, ["x".repeat(65)]: index });
    for (let index = 298; index < 300; index++) tools.call("id" + index, { ["name" + index]: index, __proto__: null, ["__proto__"]: index });`;
  const { requests } = start(source);
  const special = [{}, null, {}, { i: 0, list: [null, 1e21], "\ufffd": "\ufffd" }, null, [[1, 2]], "text"];
  assert.deepEqual(
    requests.map(({ method, input }) => [method, JSON.stringify(input)]),
    [
      ...special.map((input) => ({ id: 'a"\ufffd', input })),
      ...Array.from({ length: 300 }, (_, index) => ({ id: `id${index}`, input: { [`name${index}`]: index, ["x".repeat(65)]: index } })),
      ...[298, 299].map((index) => ({ id: `id${index}`, input: { [`name${index}`]: index, ["__proto__"]: index } })),
    ].map((input) => ["tools.call", JSON.stringify(input)]),
  );
});

test("the input of a call has one level less than other values", () => {
  const nested = (levels) => `let value = 1; for (let level = 0; level < ${levels}; level++) value = [value]; tools.call("a", value);`;
  assert.equal(start(nested(239)).requests.length, 1);
  assert.match(failureOf(nested(240), { shared }).message, /RangeError: value is nested deeper than 240 levels/);
});
