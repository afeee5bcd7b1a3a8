/** What the guest keeps to itself: the host functions and the entries by which the host drives a cell. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { GUEST } from "../../image/bundle.mjs";
import { buildCellImage, Cell, valueOf } from "./cell.mjs";

const { entries, hostFunctions } = GUEST;

/** An image whose facts also name the host functions, so that a test can ask for each by its identity. */
const imageWithHandles = (alsoRun = "") =>
  buildCellImage({
    wrapInstall: `(install) => (global, host) => {
      const result = { ...install(global, host), host };
      for (const name of ${JSON.stringify(hostFunctions)}) result["host." + name] = host[name];
      ${alsoRun};
      return result;
    }`,
    moreEntries: ["host", ...hostFunctions.map((name) => `host.${name}`)],
  });
const image = await imageWithHandles();
const shared = {
  tools: [{ id: "core:web" }],
  names: { web: "core:web" },
  globals: ["Issues"],
  namespaces: { Issues: { o: { list: { f: true }, deep: { o: { get: { f: true } } } } } },
  mcp: { github: { tools: ["list"] }, unlisted: { tools: null } },
  api: { "mcp/index.d.ts": "text" },
  apiComplete: { "": true, mcp: true },
};
const secrets = ["host", ...hostFunctions.map((name) => `host.${name}`), ...entries];

// A function that gives for some roots a predicate: whether a value is reachable from them. Evaluated before the
// program runs, it uses nothing that the program can change by then.
const WALKER = `(() => {
  const { getOwnPropertyDescriptor, getPrototypeOf, setPrototypeOf } = Object, { apply, ownKeys } = Reflect;
  const { Map, Set } = globalThis, { has, add } = Set.prototype;
  const eachOfSet = Set.prototype.forEach, eachOfMap = Map.prototype.forEach, toSource = Function.prototype.toString;
  const includesText = String.prototype.includes;
  const attempt = (action) => { try { action(); } catch {} };
  const walk = (roots) => {
    const seen = new Set();
    const queue = { __proto__: null };
    let size = 0;
    const visit = (value) => {
      if ((typeof value !== "object" && typeof value !== "function") || value === null || apply(has, seen, [value])) return;
      apply(add, seen, [value]);
      queue[size++] = value;
    };
    visit(roots);
    for (let at = 0; at < size; at++) {
      const value = queue[at];
      attempt(() => visit(getPrototypeOf(value)));
      attempt(() => apply(eachOfMap, value, [(item, key) => { visit(item); visit(key); }]));
      attempt(() => apply(eachOfSet, value, [visit]));
      attempt(() => {
        const keys = ownKeys(value);
        for (let index = 0; index < keys.length; index++) {
          const property = getOwnPropertyDescriptor(value, keys[index]);
          if (property === undefined) continue;
          // A trap on Object.prototype must not see the descriptor, and so what the walk alone has found.
          setPrototypeOf(property, null);
          visit(property.value);
          visit(property.get);
          visit(property.set);
        }
      });
    }
    return seen;
  };
  const isNative = (value) => apply(includesText, apply(toSource, value, []), ["[native code]"]);
  const before = walk(globalThis);
  return {
    __proto__: null,
    reaches: (roots) => { const seen = walk(roots); return (candidate) => apply(has, seen, [candidate]); },
    // Functions without source that were not in sight before the program ran.
    findsMore: (roots) => {
      let found = false;
      apply(eachOfSet, walk(roots), [(value) => {
        if (typeof value === "function" && !apply(has, before, [value]) && isNative(value)) found = true;
      }]);
      return found;
    },
  };
})()`;

/** Run a program and ask afterwards what its `globalThis` and `globalThis.kept` lead to. */
function runAndWalk(source, { cellImage = image } = {}) {
  const cell = new Cell({ image: cellImage, shared });
  cell.defineFunctions(["call"]);
  cell.defineCatalog();
  const walker = cell.evaluate(WALKER);
  const [reaches, findsMore] = ["reaches", "findsMore"].map((name) => cell.call(cell.evaluate(`(walker) => walker.${name}`), walker));
  cell.start(source);
  cell.deliver([1, true, { v: 1 }], [2, false, { message: "no", name: "ToolError" }]);
  cell.advance(10);
  const global = cell.evaluate("globalThis");
  const reached = cell.call(reaches, global);
  return {
    cell,
    secretsFound: secrets.filter((name) => cell.isTrue(cell.call(reached, cell.entry(name)))),
    foundMoreFunctions: () => cell.isTrue(cell.call(findsMore, cell.evaluate("globalThis.kept"))),
  };
}

// Values of every kind that the guest hands to a program.
const KEEP_EVERYTHING = `
  const kept = (globalThis.kept = [
    call(), call(), yield_control(), setTimeout(() => {}), console, text, json,
    new URL("https://h/?a=1"), new URL("https://h/?a=1").searchParams, new URLSearchParams("a=1").entries(),
    new TextDecoder(), new TextEncoder(), crypto, structuredClone(new Map([[1, new Error("x")]])), new DOMException("x"), performance,
    (function () { return arguments; })(1), (function* () {})(), (async function* () {})(), (async () => {})(), [].values(), new Map().keys(),
    tools, tools.web, tools.web(), ALL_TOOLS, namespaces, Issues, Issues.list(1), tools.search(1), Object.getOwnPropertyDescriptors(tools),
    MCP, MCP.$api(), MCP.$search("q"), MCP.github, MCP.github.list({}), MCP.github.$api(), MCP.github.resources, MCP.github.resources.list(),
    MCP.unlisted.any, MCP.unlisted.any(), Object.getOwnPropertyDescriptors(MCP), Object.getOwnPropertyDescriptors(MCP.github), API, API.list(), API.read("mcp/index.d.ts"),
    "a".matchAll(/a/g), /a/.exec("a"), Proxy.revocable({}, {}), new WeakRef({}), new FinalizationRegistry(() => {}),
  ]);
  const throwing = { get a() { throw new Error("x") } };
  for (const action of [() => require("x"), () => setTimeout(1), () => new URL("x"), () => json(throwing), () => atob("*")]) {
    try { action(); } catch (error) { kept.push(error); }
  }
  kept[1].catch((error) => kept.push(error));
  for (const refused of [tools.call(1), MCP.$search(1), MCP.$api(1), MCP.github.list(1), MCP.github.$api(1), API.list(1), API.read("..")]) {
    refused.catch((error) => kept.push(error));
  }
`;

test("no value that a program can get hold of leads to a host function or an entry", () => {
  const { cell, secretsFound } = runAndWalk(KEEP_EVERYTHING);
  assert.deepEqual(cell.failed, []);
  assert.deepEqual(secretsFound, []);
});

const leaks = {
  "in a property": ["global.leak = host", ["host", ...hostFunctions.map((name) => `host.${name}`)]],
  "behind a symbol": ["global.URL.prototype[Symbol('s')] = { deep: [result.deliver] }", ["deliver"]],
  "in a map": ["global.console.leak = new Map([['k', new Set([host.request])]])", ["host.request"]],
  "as a getter": ["Object.defineProperty(global.text, 'leak', { get: result.fireTimer })", ["fireTimer"]],
  "as a prototype": ["global.json.leak = Object.create(host.completed)", ["host.completed"]],
};

for (const [where, [leak, found]] of Object.entries(leaks)) {
  test(`a leak ${where} would be found`, async () => {
    const { secretsFound } = runAndWalk("", { cellImage: await imageWithHandles(leak) });
    assert.deepEqual(secretsFound.toSorted(), found.toSorted());
  });
}

// A sloppy function that keeps all it can learn of who called it, and every way to have the guest call it.
const LOOK_AROUND = `
  const kept = (globalThis.kept = []);
  const attempt = (action) => { try { kept.push(action()); } catch (error) { kept.push(error); } };
  const { get: callerOf, set: setCaller } = Object.getOwnPropertyDescriptor(Function.prototype, "caller") ?? {};
  const { get: argumentsOf } = Object.getOwnPropertyDescriptor(Function.prototype, "arguments") ?? {};
  Error.prepareStackTrace = function (error, frames) {
    kept.push(this, error, frames);
    attempt(() => frames.map((frame) => [frame.getFunction(), frame.getThis()]));
    return frames;
  };
  class Traced extends Error { static prepareStackTrace(error, frames) { kept.push(frames); return frames; } }
  globalThis.calls = 0;
  function spy() {
    globalThis.calls++;
    kept.push(this, arguments);
    attempt(() => arguments.callee.caller);
    attempt(() => arguments.callee.caller.arguments);
    attempt(() => spy.caller);
    attempt(() => spy.arguments);
    attempt(() => callerOf.call(spy));
    attempt(() => argumentsOf.call(spy));
    attempt(() => callerOf.call(text));
    attempt(() => text.caller);
    attempt(() => text.arguments);
    attempt(() => console.log.caller);
    attempt(() => new Error("x").stack);
    attempt(() => new Traced("x").stack);
    attempt(() => { const holder = {}; Error.captureStackTrace(holder); return holder.stack; });
    attempt(() => { const holder = {}; Error.captureStackTrace(holder, spy); return holder; });
    return 1;
  }
  const hooks = { get a() { return spy.apply(this, arguments); }, toJSON: spy };
  const proxy = new Proxy({}, { get: spy, ownKeys() { spy(); return []; }, getPrototypeOf() { spy(); return null; } });
  const number = { valueOf: spy, toString: spy, [Symbol.toPrimitive]: spy };
`;
const ways = {
  "a timer": "setTimeout(spy, 1, 2)",
  "an interval": "const id = setInterval(function () { clearInterval(id); spy.apply(this, arguments) }, 1)",
  "a delay": "setTimeout(() => {}, number)",
  "a timer id": "clearTimeout(number)",
  "a getter": "json({ get a() { return spy.apply(this, arguments) } })",
  "toJSON": "text({ toJSON: spy })",
  "a proxy": "console.log(proxy)",
  "a tag": "json({ get [Symbol.toStringTag]() { return spy.apply(this, arguments) } })",
  "the name of an error": "text(Object.defineProperty(new Error(), 'name', { get: spy }))",
  "a request's input": "call({ toJSON: spy })",
  "a reason to yield": "yield_control({ toJSON: spy })",
  "the name of a module": "try { require({ toJSON: spy }) } catch {}",
  "a tool's input": "tools.web({ toJSON: spy })",
  "the options of a search": "tools.search('q', { get limit() { return spy.apply(this, arguments) } })",
  "an argument of a namespace": "Issues.deep.get(1, { toJSON: spy })",
  "a global that was replaced before it was read":
    "Object.defineProperty(Object.prototype, 'value', { get: spy, set: spy }); ALL_TOOLS = 1; spy()",
  "what the program returns": "return { toJSON: spy }",
  "a thenable that the program returns": "return { then(done) { spy.apply(this, arguments); done(1) } }",
  "what the program throws": "throw Object.defineProperty(new Error(), 'stack', { get: spy })",
  "a rejection":
    "Promise.prototype.constructor = class {}; Promise.prototype.then = function (done) { spy.apply(this, arguments); done(1) }",
  "an answer": "Object.defineProperty(Object.prototype, 'then', { get: spy }); call()",
  "the limit of stacks":
    "Error.stackTraceLimit = number; try { require('x') } catch (error) { kept.push(error) } spy()",
  "an URL": "new URL({ toString: spy, [Symbol.toPrimitive]: undefined })",
  "an array with a species":
    "class Mine extends Array { static get [Symbol.species]() { return spy } } json(new Mine(3)); text(new Mine(3)); spy()",
};

for (const [what, use] of Object.entries(ways)) {
  test(`a function that the guest calls through ${what} learns nothing of the guest`, () => {
    const { cell, secretsFound } = runAndWalk(`${LOOK_AROUND} ${use}`);
    assert.ok(cell.isTrue(cell.evaluate("globalThis.calls > 0")), "the guest called it");
    assert.deepEqual(secretsFound, []);
  });
}

test("no hook gives a program the frames of the stack", () => {
  const frames = valueOf(`
    const seen = [];
    for (const C of [Error, TypeError, RangeError, DOMException, class Mine extends Error {}]) {
      C.prepareStackTrace = (error, frames) => { seen.push(frames); return frames };
      try { C.stackTraceLimit = 100 } catch {}
      const holder = {};
      Error.captureStackTrace(holder);
      seen.push(typeof holder.stack, typeof new C("x").stack);
    }
    for (const action of [() => require("x"), () => setTimeout(1), () => null.x]) {
      try { action() } catch (error) { seen.push(typeof error.stack) }
    }
    return [...new Set(seen)]`);
  assert.deepEqual(frames, ["string"]);
});

test("no function of the guest tells who called it", () => {
  const outcomes = valueOf(`
    const outcomes = new Set();
    for (const f of [text, json, console.log, setTimeout, yield_control, require, URL, structuredClone]) {
      for (const key of ["caller", "arguments"]) {
        try { outcomes.add(String(f[key])) } catch (error) { outcomes.add(error.name) }
      }
    }
    return [...outcomes].sort()`);
  assert.ok(outcomes.every((outcome) => outcome === "TypeError" || outcome === "undefined" || outcome === "null"), `${outcomes}`);
});

// The tampering functions keep their receiver and their arguments: what the guest passes to intrinsics, if it does.
const LOOT = `
  const { defineProperty } = Object, { ownKeys, getPrototypeOf } = Reflect;
  const kept = (globalThis.kept = { __proto__: null });
  let count = 0;
  const keep = (value) => {
    if ((typeof value === "function" || typeof value === "object") && value !== null && count < 20_000) kept[count++] = value;
  };
  const evil = function (first, second, third) {
    keep(this);
    keep(first);
    keep(second);
    keep(third);
    return first;
  };
  const replaceAll = (target) => {
    const keys = ownKeys(target);
    for (let i = 0; i < keys.length; i++) {
      try { defineProperty(target, keys[i], { __proto__: null, value: evil, writable: true, configurable: true }); } catch {}
    }
  };
  const accessor = { __proto__: null, get: evil, set: evil, configurable: true };
  const map = new Map([["k", 1]]), set = new Set([1]), date = new Date(0), error = new Error("x");
  const values = [1n, Symbol("s"), map, set, date, error, /x/, new Uint8Array(2), Promise.resolve(), {}, () => 1, new Number(1)];
`;
const USE_CORE = `
  for (let i = 0; i < 12; i++) { try { text(values[i]); json(values[i]); console.log("%s", values[i], values[i]); } catch {} }
  try { require("x") } catch {}
  try { setTimeout((x) => text(x), 1, "a"); clearTimeout(setInterval(() => {}, 1)); } catch {}
  try { json([ALL_TOOLS, tools, Issues]); tools.web(1); tools.search("q"); Issues.list(1, 2); tools.missing; tools.call(1).then(() => {}, () => {}); } catch {}
  try { json([MCP, MCP.github, API]); MCP.github.list({ a: 1 }); MCP.unlisted.any(); MCP.missing; MCP.github.missing; MCP.$search("q"); MCP.github.$api("list"); } catch {}
  try { MCP.github.prompts.get({}); MCP.github.list(1).then(() => {}, () => {}); ownKeys(MCP); ownKeys(MCP.github); } catch {}
  try { API.list("mcp").then(() => {}, () => {}); API.read("mcp/index.d.ts"); API.read("..").then(() => {}, () => {}); } catch {}
  try { call({ a: [1] }).then(() => {}, () => {}); call(); yield_control("x"); } catch {}
`;
const lootings = {
  "Array.prototype": "replaceAll(Array.prototype)",
  "index setters":
    "for (let i = 0; i < 30; i++) { defineProperty(Array.prototype, i, accessor); defineProperty(Object.prototype, i, accessor) }",
  "accessors on Object.prototype": `
    for (const key of ["resolve", "reject", "site", "stack", "message", "memory", "value", "get", "set", "due", "callback", "args",
      "first", "last", "next", "previous", "id", "name", "code", "enumerable", "writable", "", "deliver", "start", "request"]) {
      defineProperty(Object.prototype, key, accessor);
    }`,
  "Object and Reflect": "replaceAll(Object); replaceAll(Reflect)",
  "JSON": "replaceAll(JSON); globalThis.JSON = evil",
  "Function.prototype": "replaceAll(Function.prototype)",
  "String.prototype": "replaceAll(String.prototype)",
  "Map.prototype and Set.prototype":
    "replaceAll(Map.prototype); replaceAll(Set.prototype); replaceAll(WeakMap.prototype)",
  "Number, BigInt, Symbol, Date and RegExp":
    "for (const C of [Number, BigInt, Symbol, Date, RegExp]) { replaceAll(C); replaceAll(C.prototype) }",
  "Error": "replaceAll(Error); replaceAll(Error.prototype)",
  "typed arrays":
    "replaceAll(Uint8Array.prototype); replaceAll(getPrototypeOf(Uint8Array.prototype)); replaceAll(ArrayBuffer.prototype)",
  "the iterators":
    "replaceAll(getPrototypeOf([].values())); replaceAll(getPrototypeOf(map.entries())); replaceAll(getPrototypeOf(set.values()))",
  "the globals": `for (const key of ["JSON", "Map", "Set", "Symbol", "Object", "Array", "TypeError", "RangeError", "Error",
      "Number", "String", "Reflect", "Date", "Promise"]) globalThis[key] = evil`,
};

for (const [what, tampering] of Object.entries(lootings)) {
  test(`a program that overwrites ${what} is handed no function of the guest`, () => {
    const { secretsFound, foundMoreFunctions } = runAndWalk(`${LOOT} ${tampering}; ${USE_CORE}`);
    assert.deepEqual(secretsFound, []);
    assert.equal(foundMoreFunctions(), false);
  });
}

test("a function of the guest that a program was handed would be found", async () => {
  const cellImage = await imageWithHandles("global.text = (value) => [value].map(result.describeFailure)");
  const { secretsFound, foundMoreFunctions } = runAndWalk(`${LOOT} replaceAll(Array.prototype); ${USE_CORE}`, { cellImage });
  assert.deepEqual(secretsFound, ["describeFailure"]);
  assert.equal(foundMoreFunctions(), true);
});

test("promises that are overwritten hand out no entry and no host function", () => {
  const { secretsFound } = runAndWalk(`${LOOT} replaceAll(Promise); replaceAll(Promise.prototype); ${USE_CORE}`);
  assert.deepEqual(secretsFound, []);
});

test("no name of an internal hook is anywhere in sight", () => {
  const names = valueOf(`
    const seen = new Set(), names = new Set(), queue = [globalThis, ALL_TOOLS, Issues, MCP.github];
    while (queue.length > 0) {
      const value = queue.pop();
      if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) continue;
      seen.add(value);
      queue.push(Object.getPrototypeOf(value));
      for (const key of Reflect.ownKeys(value)) {
        names.add(String(key));
        const { value: inner, get, set } = Object.getOwnPropertyDescriptor(value, key);
        queue.push(inner, get, set);
      }
      if (typeof value === "function") names.add(value.name);
    }
    return [...names]`, { shared });
  assert.ok(names.includes("setTimeout") && names.includes("fromCharCode"), "the walk went somewhere");
  assert.deepEqual(names.filter((name) => /openclaw|nacre|core-js/i.test(name)), []);
  const internal = ["completed", "failed", "deliver", "describeFailure", "defineFunctions", "fireTimer", "untilNextTimer", "hostRandomBytes", "defineCatalog", "moduleError"];
  assert.deepEqual(names.filter((name) => internal.includes(name)), []);
});

test("the guest adds exactly its documented names to the engine's globals", async () => {
  const bareImage = await buildCellImage({
    wrapInstall: `(install) => (global, host) => {
      const names = Reflect.ownKeys(global).map(String);
      const result = install(global, host);
      global.names = names;
      return result;
    }`,
  });
  const engineNames = valueOf("return names", { image: bareImage });
  const added = valueOf("return Reflect.ownKeys(globalThis).map(String)").filter((name) => !engineNames.includes(name));
  assert.deepEqual(added.toSorted(), [
    "TextDecoder", "TextEncoder", "URL", "URLSearchParams", "clearInterval", "clearTimeout", "console", "crypto", "image", "json", "require",
    "setInterval", "setTimeout", "structuredClone", "text", "yield_control",
  ]);
});

test("shared data adds exactly the names of the catalog, of MCP and of the namespaces", () => {
  const names = (options) => valueOf("return Reflect.ownKeys(globalThis).map(String)", options);
  const without = names();
  assert.deepEqual(names({ shared }).filter((name) => !without.includes(name)), ["tools", "ALL_TOOLS", "MCP", "API", "Issues", "namespaces"]);
});

test("shared data may ask for its namespaces alone: then nothing else of the host's is there, nor a way to wait", () => {
  const names = (options) => valueOf("return Reflect.ownKeys(globalThis).map(String)", options);
  const without = names();
  const alone = names({ shared: { ...shared, globals: { only: ["Issues"] } } });
  assert.deepEqual(alone.filter((name) => !without.includes(name)), ["Issues"]);
  assert.deepEqual(without.filter((name) => !alone.includes(name)), ["yield_control"]);
});

test("the guest's own variables are not in a program's scope", () => {
  const names = ["guest", "install", "host", "global", "exports", "module", "process", "std", "os", "scriptArgs", "print"];
  assert.deepEqual(valueOf(`return ${JSON.stringify(names)}.filter((name) => eval("typeof " + name) !== "undefined")`), []);
});

test("functions of the guest show no source", () => {
  const shown = valueOf(`
    const seen = new Set(), queue = [globalThis], shown = [];
    while (queue.length > 0) {
      const value = queue.pop();
      if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) continue;
      seen.add(value);
      for (const key of Reflect.ownKeys(value)) {
        const { value: inner, get, set } = Object.getOwnPropertyDescriptor(value, key);
        queue.push(inner, get, set);
      }
      if (typeof value !== "function") continue;
      const source = Function.prototype.toString.call(value);
      if (!/^[a-z* ]*[^(){};=]*\\(\\) \\{\\s*\\[native code\\]\\s*\\}$/.test(source)) shown.push(source);
    }
    return { count: seen.size, shown }`);
  assert.ok(shown.count > 500);
  assert.deepEqual(shown.shown, []);
});

test("a program's own functions show theirs", () => {
  assert.equal(valueOf("return (() => 1 + 1).toString()"), "() => 1 + 1");
});
