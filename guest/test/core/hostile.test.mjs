/** Programs that tamper with the intrinsics: they break themselves at most, never the guest. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { GuestError, startCell, valueOf } from "./cell.mjs";

// What tampering programs may use. `evil` answers like a broken function, `replaceAll` puts it in every place it can.
const TOOLS = `
  const { defineProperty } = Object, { ownKeys } = Reflect;
  const evil = function () { return evil; };
  const replaceAll = (target, replacement = evil) => {
    const keys = ownKeys(target);
    for (let i = 0; i < keys.length; i++) {
      if (keys[i] === "prototype") continue;
      try { defineProperty(target, keys[i], { __proto__: null, value: replacement, writable: true, configurable: true }); } catch {}
    }
  };
  const trap = (target, keys) => {
    for (let i = 0; i < keys.length; i++) {
      try { defineProperty(target, keys[i], { __proto__: null, get: evil, set: evil, configurable: true }); } catch {}
    }
  };
  const explode = () => { throw "exploded"; };
  const { prototype: asyncPrototype } = (async () => {}).constructor;
`;

// Everything the guest does for a program. It runs after the tampering and needs nothing that was tampered with.
const USE_EVERYTHING = `
  text("a");
  text(1n);
  json({ b: [1, "x", { c: null, d: date, e: map, f: set }] });
  json(error);
  console.log("n=%d", 5, { k: 1 }, [2]);
  const cleared = setTimeout(text, 5, "cleared");
  clearTimeout(cleared);
  setTimeout((x, y) => text(x + y), 5, "timer ", "arg");
  const answer = await call({ q: [1] });
  text(answer.v);
  try { await call("bad") } catch (error) { text(error.message + " " + error.name + " " + error.code) }
  await yield_control("why");
  json(ALL_TOOLS);
  json([tools, namespaces, Issues, namespaces.Issues === Issues, tools.web === tools.web, tools.missing, "web" in tools]);
  try { tools.web = 1 } catch (error) { text(error.message) }
  tools.search("q", { limit: 3 });
  tools.describe("id");
  tools.call("id");
  tools.web({ deep: [1] });
  Issues.list("a", { b: 2 });
  json([MCP, MCP.github, MCP.github.resources, API, MCP.github === MCP.github, MCP.missing, "list" in MCP.github, "x" in MCP.github, "x" in MCP.unlisted]);
  try { MCP.github.list = 1 } catch (error) { text(error.message) }
  MCP.github.list({ deep: [1] });
  MCP.unlisted.any();
  MCP.github.resources.read({ uri: "u" });
  MCP.$search("q");
  MCP.github.$api("list", { schema: true });
  try { await MCP.github.list([1]) } catch (error) { text(error.message) }
  json(await API.list("mcp"));
  text(await API.read("mcp/index.d.ts"));
  try { await API.read("mcp/../x") } catch (error) { text(error.message) }
  return { done: true, list: [1, 2] };
`;
const SHARED = {
  tools: [{ id: "core:web", name: "web" }],
  names: { web: "core:web" },
  globals: ["Issues"],
  namespaces: { Issues: { o: { list: { f: true }, states: { a: [{ v: "open" }, { v: { deep: [1] } }] } } } },
  mcp: { github: { tools: ["list"] }, unlisted: { tools: null } },
  api: { "mcp/index.d.ts": "// the index" },
  apiComplete: { "": true, mcp: true },
};
const VALUES = 'const date = new Date(0), map = new Map([["k", 2n]]), set = new Set([1]), error = new Error("e");';

/** Run a tampering, then use everything; what the host saw, with all requests answered and all timers fired. */
function run(tampering) {
  const cell = startCell(`${TOOLS} ${VALUES} ${tampering};\n${USE_EVERYTHING}`, { functions: ["call"], shared: SHARED });
  cell.deliver([1, true, { v: "value" }]);
  cell.deliver([2, false, { name: "ToolError", message: "no", code: "denied" }]);
  cell.deliver([3, true, null]);
  cell.advance(10);
  return cell;
}

const seenBy = ({ outputs, requests, pauses, completed, failed }) => ({ outputs, requests, pauses, completed, failed });

const trappedNames = [
  "", "0", "1", "2", "3", "args", "assert", "callback", "code", "configurable", "count", "depth", "due", "enumerable", "first", "get",
  "id", "index", "key", "last", "length", "line", "log", "memory", "message", "modules", "name", "next", "pending", "previous", "reject",
  "repeatEveryMs", "resolve", "set", "site", "stack", "value", "writable", "a", "f", "o", "v", "has", "host", "idOf", "input", "install",
  "kind", "limit", "member", "namespace", "ownKeys", "path", "query", "search", "send", "tools", "advice", "keys", "isHidden", "missed", "names", "owner", "server", "schema", "size", "text", "areComplete", "below",
];

// A program with one of these must not differ for the host from one without.
const harmless = {
  "JSON": "JSON.stringify = JSON.parse = () => 'forged'; globalThis.JSON = evil",
  "every global object": `
    for (const name of ["Array", "ArrayBuffer", "BigInt", "Boolean", "DataView", "Date", "Error", "Function", "JSON", "Map", "Math", "Number",
      "Object", "Promise", "Proxy", "RangeError", "Reflect", "RegExp", "Set", "String", "Symbol", "TypeError", "Uint8Array", "WeakMap",
      "WeakSet", "DOMException", "queueMicrotask", "globalThis", "undefined"]) { try { globalThis[name] = evil } catch {} }`,
  "the functions of Object and Reflect": "replaceAll(Object); replaceAll(Reflect)",
  "the functions of Array, Number, String, Date and Promise":
    "for (const C of [Array, Number, String, Date, Promise, ArrayBuffer]) replaceAll(C)",
  "Array.prototype": "replaceAll(Array.prototype)",
  "Array.prototype's functions with ones that throw": "replaceAll(Array.prototype, explode)",
  "index setters on Array.prototype":
    "for (let i = 0; i < 50; i++) defineProperty(Array.prototype, i, { __proto__: null, set: explode, configurable: true })",
  "index setters on Object.prototype":
    "for (let i = 0; i < 50; i++) defineProperty(Object.prototype, i, { __proto__: null, set: explode, get: explode, configurable: true })",
  "Symbol.iterator and the iterators": `
    const iteratorPrototypes = [[].values(), new Map().entries(), new Set().values(), ""[Symbol.iterator]()].map((i) => Object.getPrototypeOf(i));
    iteratorPrototypes.forEach((prototype) => { prototype.next = explode });
    Array.prototype[Symbol.iterator] = Map.prototype[Symbol.iterator] = Set.prototype[Symbol.iterator] = explode`,
  "accessors on Object.prototype": `trap(Object.prototype, ${JSON.stringify(trappedNames)})`,
  "Function.prototype": "replaceAll(Function.prototype)",
  "call, apply and bind": "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = explode",
  "Map.prototype and Set.prototype": "replaceAll(Map.prototype, explode); replaceAll(Set.prototype, explode)",
  "WeakMap.prototype and WeakSet.prototype":
    "replaceAll(WeakMap.prototype, explode); replaceAll(WeakSet.prototype, explode)",
  "String.prototype": "replaceAll(String.prototype, explode)",
  // QuickJS calls it for every template literal with a value in it.
  "String.prototype.concat": "String.prototype.concat = () => 'forged'",
  "Number.prototype, BigInt.prototype and Symbol.prototype":
    "for (const C of [Number, BigInt, Symbol, Boolean]) replaceAll(C.prototype, explode)",
  "RegExp.prototype": "replaceAll(RegExp.prototype, explode)",
  "Date.prototype and the clock": "replaceAll(Date.prototype, explode); Date.now = () => 0; performance.now = () => 0",
  "Error.captureStackTrace": "Error.captureStackTrace = explode",
  "Error.prepareStackTrace":
    "Error.prepareStackTrace = explode; defineProperty(Error, 'prepareStackTrace', { __proto__: null, get: explode })",
  "Error.stackTraceLimit with zero": "Error.stackTraceLimit = 0",
  "Error.stackTraceLimit with an object": "Error.stackTraceLimit = { valueOf: explode }",
  "Error.isError": "Error.isError = explode",
  "the functions of Promise": "replaceAll(Promise, explode)",
  "Promise[Symbol.species]": "defineProperty(Promise, Symbol.species, { __proto__: null, get: explode })",
  "Promise.prototype.then, catch and finally":
    "Promise.prototype.then = Promise.prototype.catch = Promise.prototype.finally = explode",
  "Promise.prototype.constructor with another class": "Promise.prototype.constructor = class Mine {}",
  "the prototypes of functions":
    "replaceAll(asyncPrototype, explode); replaceAll(Object.getPrototypeOf(function* () {}), explode)",
  "typed arrays":
    "replaceAll(Uint8Array.prototype, explode); replaceAll(Object.getPrototypeOf(Uint8Array.prototype), explode)",
  "Symbol": "replaceAll(Symbol, explode)",
  "its own globals of no concern":
    "globalThis.deliver = globalThis.start = globalThis.completed = globalThis.guest = explode",
};

const untampered = seenBy(run(""));

test("the program that uses everything does so", () => {
  assert.deepEqual(untampered, {
    outputs: [
      { kind: "text", content: "a" },
      { kind: "text", content: "1" },
      { kind: "json", content: '{"b":[1,"x",{"c":null,"d":"1970-01-01T00:00:00.000Z","e":{"k":"2"},"f":[1]}]}' },
      { kind: "json", content: '{"name":"Error","message":"e"}' },
      { kind: "text", content: 'n=5 {"k":1} [2]' },
      { kind: "text", content: "value" },
      { kind: "text", content: "no ToolError denied" },
      { kind: "json", content: '[{"id":"core:web","name":"web"}]' },
      {
        kind: "json",
        content:
          '["[tools: see ALL_TOOLS and tools.search(query)]","[namespaces: Issues]",' +
          '{"list":"[Function list]","states":["open",{"deep":[1]}]},true,true,null,true]',
      },
      { kind: "text", content: "tools is read-only" },
      {
        kind: "json",
        content:
          '["[MCP: see Object.keys(MCP), MCP.$api() and MCP.$search(query)]","[MCP.github: see MCP.github.$api()]",' +
          '"[MCP.github.resources: list, read, templates]","[API: see API.list(prefix) and API.read(path)]",true,null,true,false,true]',
      },
      { kind: "text", content: "MCP.github is read-only" },
      { kind: "text", content: "MCP.github.list takes one object; it was given: array" },
      { kind: "json", content: '[{"path":"mcp/index.d.ts","size":12}]' },
      { kind: "text", content: "// the index" },
      {
        kind: "text",
        content: 'API.read takes a path such as mcp/index.d.ts, without . or .. or empty names; it was given: "mcp/../x"',
      },
      { kind: "text", content: "timer arg" },
    ],
    requests: [
      { id: 1, method: "call", input: { q: [1] } },
      { id: 2, method: "call", input: "bad" },
      { id: 4, method: "tools.search", input: { query: "q", limit: 3 } },
      { id: 5, method: "tools.describe", input: { id: "id" } },
      { id: 6, method: "tools.call", input: { id: "id", input: {} } },
      { id: 7, method: "tools.call", input: { id: "core:web", input: { deep: [1] } } },
      { id: 8, method: "namespace", input: { namespace: "Issues", path: ["list"], args: ["a", { b: 2 }] } },
      { id: 9, method: "mcp.call", input: { server: "github", path: ["list"], input: { deep: [1] } } },
      { id: 10, method: "mcp.call", input: { server: "unlisted", path: ["any"], input: {} } },
      { id: 11, method: "mcp.call", input: { server: "github", path: ["resources", "read"], input: { uri: "u" } } },
      { id: 12, method: "mcp.search", input: { query: "q" } },
      { id: 13, method: "mcp.api", input: { server: "github", tool: "list", schema: true } },
    ],
    pauses: [{ id: 3, reason: "why" }],
    completed: ['{"done":true,"list":[1,2]}'],
    failed: [],
  });
});

for (const [what, tampering] of Object.entries(harmless)) {
  test(`a program that overwrites ${what} does not change what the guest tells the host`, () => {
    assert.deepEqual(seenBy(run(tampering)), untampered);
  });

  test(`a program that overwrites ${what} still fails with its own error`, () => {
    const cell = startCell(`${TOOLS} const mine = new RangeError("mine"); ${tampering};\nthrow mine`);
    assert.equal(cell.failed.length, 1);
    assert.equal(cell.failed[0].message, "RangeError: mine");
  });
}

// These change what the program's own values mean, so its results are its own affair.
const selfDefeating = {
  "toJSON on Object.prototype": "Object.prototype.toJSON = explode",
  "then on Object.prototype": "Object.prototype.then = explode",
  "then on Object.prototype that never answers": "Object.prototype.then = () => {}",
  "then on Object.prototype that answers twice":
    "Object.prototype.then = (resolve, reject) => { resolve(1); resolve(2); reject(3) }",
  "string tags on Object.prototype":
    "defineProperty(Object.prototype, Symbol.toStringTag, { __proto__: null, get: explode })",
  "Promise.prototype's constructor and then":
    "defineProperty(Promise.prototype, 'constructor', { __proto__: null, get: explode }); Promise.prototype.then = explode",
  "Promise.prototype's constructor and a then that never answers":
    "Promise.prototype.constructor = evil; Promise.prototype.then = () => {}",
  "Promise.prototype's constructor and a then that answers twice":
    "Promise.prototype.constructor = evil; Promise.prototype.then = (resolve, reject) => { resolve(1); reject(2); resolve(3) }",
  "Error.prototype": "replaceAll(Error.prototype, explode)",
  "name and message of all errors":
    "for (const key of ['name', 'message', 'stack']) defineProperty(Error.prototype, key, { __proto__: null, get: explode, set: explode })",
  "the prototype of Object.prototype's own functions": "replaceAll(Object.prototype, explode)",
  "the prototype of an array":
    "Object.setPrototypeOf(Array.prototype, new Proxy({}, { get: explode, set: explode, has: explode }))",
  "the prototype of a function":
    "Object.setPrototypeOf(Function.prototype, new Proxy({}, { get: explode, has: explode }))",
  "the prototype of the global object":
    "try { Object.setPrototypeOf(globalThis, new Proxy({}, { get: explode, has: explode })) } catch {}",
  "all of that":
    "for (const C of [Array, Object, Function, Promise, Map, Set, String, Error, Date]) { replaceAll(C.prototype, explode); replaceAll(C, explode) }",
};

for (const [what, tampering] of Object.entries(selfDefeating)) {
  test(`a program that tampers with ${what} ends at most once, and the host reads all it says`, () => {
    let cell;
    try {
      cell = run(tampering);
    } catch (error) {
      // The host was told by an exception that it can describe.
      assert.ok(error instanceof GuestError, error.stack);
      return;
    }
    assert.ok(cell.completed.length + cell.failed.length <= 1);
    for (const json of cell.completed) JSON.parse(json);
    for (const { kind, content } of cell.outputs) if (kind === "json") JSON.parse(content);
    cell.unhandledFailure();
  });
}

test("a program cannot make the guest write what is not JSON", () => {
  const cell = startCell(`
    JSON.stringify = () => "not json";
    String.prototype.toWellFormed = () => "\\ud800";
    Object.prototype.toJSON = undefined;
    const quote = { toString: () => '"', toJSON: () => '","forged":"' };
    json({ ['"},{"forged":1,"x":"']: '"', quote, [Symbol.toPrimitive]: 1, n: new (class extends Number { valueOf() { return "x" } })(1) });
    json(new Map([['":1,"forged', '"']]));
    json({ get [Symbol.toStringTag]() { return '"' } });
    json(Object.defineProperty(() => 1, "name", { value: '"forged' }));
    json(Object.assign(/x/, { toString: () => '"' }));
    json(new (class extends Date { toISOString() { return '"' } toJSON() { return '"' } })(0));
    json(Object.assign(new Error('"'), { name: '"' }));`);
  assert.deepEqual(cell.said, [
    { '"},{"forged":1,"x":"': '"', quote: '","forged":"', n: 1 },
    { '":1,"forged': '"' },
    '["]',
    '[Function "forged]',
    "/x/",
    "1970-01-01T00:00:00.000Z",
    { name: '"', message: '"' },
  ]);
});

test("a map that grows while it is written comes to an end", () => {
  const program = "const m = new Map(); const grow = () => { m.set(m.size, { toJSON: grow }); return m.size }; grow(); return m";
  assert.deepEqual(valueOf(program), [[0, 2]]);
});

test("an error from the host carries only its data, whatever the program put on prototypes", () => {
  const cell = startCell(
    `
    const seen = [];
    for (const key of ["message", "name", "stack", "code", "value", "get", "cause"]) {
      Object.defineProperty(Object.prototype, key, { __proto__: null, get() {}, set(value) { seen.push(key) } });
    }
    try { await call() } catch (error) { return [Object.getOwnPropertyNames(error), error.code, seen] }`,
    { functions: ["call"] },
  );
  cell.deliver([1, false, { name: "ToolError", message: "no", code: "denied" }]);
  const [names, code, seen] = cell.value;
  assert.deepEqual(names.sort(), ["code", "message", "name", "stack"]);
  assert.equal(code, "denied");
  assert.deepEqual(seen, []);
});

test("what one program broke is whole in the next VM", () => {
  const tampering = Object.values(harmless).map((source) => `try { (() => { ${source} })() } catch {}`).join(";\n");
  startCell(`${TOOLS} ${tampering}`);
  assert.deepEqual(seenBy(run("")), untampered);
});
