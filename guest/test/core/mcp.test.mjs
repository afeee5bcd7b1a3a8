/** `MCP`: servers and their functions, found when touched, called by requests, and changed by nobody. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, startCell, valueOf } from "./cell.mjs";

const shared = {
  mcp: { github: { tools: ["createIssue", "list"] }, docs: { tools: [] }, later: { tools: null } },
  globals: [],
};
const start = (source, options) => startCell(source, { shared, ...options });
const value = (source, options) => valueOf(source, { shared, ...options });
const sent = (cell) => cell.requests.map(({ method, input }) => [method, input]);
const withServers = (servers) => ({ shared: { mcp: servers } });

// What a program finds.

test("servers are the keys of MCP, and tools are the keys of a server", () => {
  assert.deepEqual(
    value(`return [
      Object.keys(MCP), Object.keys(MCP.github), Object.keys(MCP.docs), Object.keys(MCP.later),
      Reflect.ownKeys(MCP), Reflect.ownKeys(MCP.github), Object.entries(MCP.github).map(([name, tool]) => tool === MCP.github[name]),
      "github" in MCP, "$api" in MCP, "gitlab" in MCP, "list" in MCP.github, "$api" in MCP.github, "read" in MCP.github, "read" in MCP.later,
      Object.hasOwn(MCP, "github"), Object.getOwnPropertyDescriptor(MCP.github, "read") ?? null, Symbol.iterator in MCP,
    ]`),
    [
      ["github", "docs", "later"], ["createIssue", "list"], [], [],
      ["github", "docs", "later", "$api", "$search"], ["createIssue", "list", "$api", "resources", "prompts"], [true, true],
      true, true, false, true, true, false, true,
      true, null, false,
    ],
  );
});

for (const [what, parts] of Object.entries({ "no part": {}, "an empty part": { mcp: {} } })) {
  test(`with ${what} MCP has no servers and still answers`, () => {
    const cell = start("MCP.$api(); MCP.$search('x'); return [typeof MCP, Object.keys(MCP), MCP.github ?? null, 'github' in MCP]", { shared: parts });
    assert.deepEqual(cell.value, ["object", [], null, false]);
    assert.deepEqual(sent(cell), [["mcp.api", { server: null, tool: null, schema: false }], ["mcp.search", { query: "x" }]]);
  });
}

test("without shared data there is neither MCP nor API", () => {
  assert.deepEqual(valueOf("return [typeof MCP, typeof API]"), ["undefined", "undefined"]);
});

test("nothing is read before a program touches it", () => {
  assert.deepEqual(start("return 1").lookups, []);
  assert.deepEqual(start("json([MCP, API]); MCP.$api(); MCP.$search('x'); return typeof MCP").lookups, []);
});

test("a server is looked up once and is the same object each time", () => {
  const cell = start("return [MCP.github === MCP.github, MCP.github.list === MCP.github.list, MCP.github.resources === MCP.github.resources, Object.keys(MCP.github)]");
  assert.deepEqual(cell.value, [true, true, true, ["createIssue", "list"]]);
  assert.deepEqual(cell.lookups, [["mcp", "github"]]);
});

test("listing the servers fetches them once, whatever is read afterwards", () => {
  const cell = start("const { github } = MCP; Object.keys(MCP); Object.keys(MCP); MCP.missing; return [MCP.github === github, typeof MCP.docs.$api]");
  assert.deepEqual(cell.value, [true, "function"]);
  assert.deepEqual(cell.lookups, [["mcp", "github"], ["mcp"]]);
});

test("functions have their names, take one argument and are no classes", () => {
  assert.deepEqual(
    value(`
      const { createIssue, $api, resources } = MCP.github;
      return [createIssue, $api, resources.read, MCP.$api, MCP.$search].map(({ name, prototype }) => [name, typeof prototype]).concat(createIssue.length)`),
    [["createIssue", "undefined"], ["$api", "undefined"], ["read", "undefined"], ["$api", "undefined"], ["$search", "undefined"], 1],
  );
});

test("MCP and its parts are shown by short texts, and nothing is read for that", () => {
  const marker = "[MCP: see Object.keys(MCP), MCP.$api() and MCP.$search(query)]";
  const cell = start("text(MCP); json(MCP); console.log('%s', MCP); return { MCP, list: [MCP] }");
  assert.deepEqual(cell.said, [marker, marker, marker]);
  assert.deepEqual(cell.value, { MCP: marker, list: [marker] });
  assert.deepEqual(cell.lookups, []);
  assert.deepEqual(value("return [MCP.github, MCP.later, MCP.github.resources, MCP.github.prompts, MCP.github.list]"), [
    "[MCP.github: see MCP.github.$api()]", "[MCP.later: see MCP.later.$api()]",
    "[MCP.github.resources: list, read, templates]", "[MCP.github.prompts: list, get]", "[Function list]",
  ]);
});

// Calls.

test("a call names the server, the path and the input, and resolves to the answer", () => {
  const cell = start("const { createIssue } = MCP.github; return await createIssue({ title: 'a', big: 1n, when: new Date(0) })");
  assert.deepEqual(sent(cell), [
    ["mcp.call", { server: "github", path: ["createIssue"], input: { title: "a", big: "1", when: "1970-01-01T00:00:00.000Z" } }],
  ]);
  cell.deliver([1, true, { content: [], isError: true }]);
  assert.deepEqual(cell.value, { content: [], isError: true });
});

test("resources and prompts are called by their paths, on every server", () => {
  const cell = start(`
    const { resources, prompts } = MCP.docs;
    resources.list(); resources.read({ uri: "memo://one" }); resources.templates({ cursor: "c" });
    prompts.list(); MCP.later.prompts.get({ name: "brief", arguments: { topic: "release" } })`);
  assert.deepEqual(cell.requests.map(({ input }) => [input.server, input.path, input.input]), [
    ["docs", ["resources", "list"], {}],
    ["docs", ["resources", "read"], { uri: "memo://one" }],
    ["docs", ["resources", "templates"], { cursor: "c" }],
    ["docs", ["prompts", "list"], {}],
    ["later", ["prompts", "get"], { name: "brief", arguments: { topic: "release" } }],
  ]);
});

test("$api tells of all servers, of one, or of one tool", () => {
  const cell = start("MCP.$api(); MCP.github.$api(); MCP.github.$api('list'); MCP.later.$api(null, { schema: true }); MCP.github.$api('list', { schema: 0 })");
  assert.deepEqual(sent(cell), [
    ["mcp.api", { server: null, tool: null, schema: false }],
    ["mcp.api", { server: "github", tool: null, schema: false }],
    ["mcp.api", { server: "github", tool: "list", schema: false }],
    ["mcp.api", { server: "later", tool: null, schema: true }],
    ["mcp.api", { server: "github", tool: "list", schema: false }],
  ]);
});

test("$search sends the query and the limit", () => {
  const cell = start("MCP.$search('issues', { limit: 3 }); MCP.$search('issues'); return await MCP.$search('', null)");
  assert.deepEqual(sent(cell), [
    ["mcp.search", { query: "issues", limit: 3 }],
    ["mcp.search", { query: "issues" }],
    ["mcp.search", { query: "" }],
  ]);
  cell.deliver([3, true, [{ path: "MCP.github.list" }]]);
  assert.deepEqual(cell.value, [{ path: "MCP.github.list" }]);
});

for (const [call, message] of [
  ["MCP.github.list('x')", "MCP.github.list takes one object; it was given: string"],
  ["MCP.github.list([{}])", "MCP.github.list takes one object; it was given: array"],
  ["MCP.github.list(null)", "MCP.github.list takes one object; it was given: null"],
  ["MCP.github.list(() => 1)", "MCP.github.list takes one object; it was given: function"],
  ["MCP.later.any(1n)", "MCP.later.any takes one object; it was given: bigint"],
  ["MCP.docs.resources.read('memo://one')", "MCP.docs.resources.read takes one object; it was given: string"],
  ["MCP.github.$api({ schema: true })", "MCP.github.$api takes the name of a tool as text, or nothing; it was given: object"],
  ["MCP.$api('github')", "MCP.$api takes nothing; MCP.<server>.$api(tool) tells of one server; it was given: string"],
  ["MCP.$search({ query: 'x' })", "MCP.$search takes a query as text; it was given: object"],
]) {
  test(`${call} is rejected, sends nothing and says what it takes`, () => {
    const cell = start(`return await ${call}.catch((error) => [error instanceof TypeError, error.message])`);
    assert.deepEqual(cell.value, [true, message]);
    assert.deepEqual(cell.requests, []);
    assert.match(failureOf(`\n  await ${call}`, { shared }).stack, /^ {4}at <anonymous> \(cell\.js:2:/);
  });
}

// A server that was not asked for its tools yet.

test("before a server is asked for its tools, every name that could be one is a function", () => {
  const cell = start("MCP.later.anything({ a: 1 }); MCP.later.über(); MCP.later._x1$(); MCP.later.delete(); return MCP.later.anything === MCP.later.anything");
  assert.deepEqual(cell.requests.map(({ input }) => input.path), [["anything"], ["über"], ["_x1$"], ["delete"]]);
  assert.equal(cell.value, true);
});

test("names that cannot be tools, or that programs read of any object, are none", () => {
  assert.deepEqual(
    value(String.raw`
      const names = ["then", "toJSON", "$x", "$search", "$", "", "0", "1a", "a-b", "a.b", "a b", "a\n", "\0", "a/b", "\ud800", "a\udc00", "constructor", "prototype", "__proto__",
        "toString", "valueOf", "toLocaleString", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "__defineGetter__", "__lookupSetter__"];
      const symbols = [Symbol.toPrimitive, Symbol.toStringTag, Symbol.iterator, Symbol.asyncIterator, Symbol("x")];
      return [...names, ...symbols].filter((name) => MCP.later[name] !== undefined || name in MCP.later)`),
    [],
  );
});

test("awaiting, writing and copying servers calls nothing", () => {
  const cell = start("await MCP; await MCP.later; await MCP.github; json([MCP.later]); JSON.stringify(MCP); try { String(MCP.later) } catch {} return 1");
  assert.equal(cell.value, 1);
  assert.deepEqual(cell.requests, []);
});

// Names from elsewhere.

test("nothing comes from a prototype", () => {
  assert.deepEqual(
    value(`
      Object.prototype.polluted = () => 1;
      const names = ["constructor", "__proto__", "toString", "valueOf", "hasOwnProperty", "toJSON", "then", "", "0"];
      return [MCP, MCP.github, API, MCP.github.resources].map((object) =>
        [Object.getPrototypeOf(object), names.filter((name) => object[name] !== undefined || name in object)])`),
    [[null, []], [null, []], [null, []], [null, []]],
  );
});

test("servers and tools that really have such names are like any other", () => {
  const odd = ["constructor", "__proto__", "toString", "hasOwnProperty"];
  const mcp = JSON.parse('{"__proto__": {"tools": []}, "constructor": {"tools": []}, "hasOwnProperty": {"tools": ["__proto__", "constructor", "toString", "hasOwnProperty"]}}');
  const cell = start(`
    const server = MCP.hasOwnProperty;
    for (const name of ${JSON.stringify(odd)}) server[name]({});
    MCP.__proto__.$api();
    return [Object.keys(MCP), Object.keys(server), MCP.constructor === MCP.constructor, Object.getPrototypeOf(MCP), typeof MCP.toString]`, withServers(mcp));
  assert.deepEqual(cell.value, [["__proto__", "constructor", "hasOwnProperty"], ["__proto__", "constructor", "toString", "hasOwnProperty"], true, null, "undefined"]);
  assert.deepEqual(cell.requests.map(({ input }) => input.path?.[0] ?? input.server), [...odd, "__proto__"]);
});

test("what MCP and servers offer themselves, and what JavaScript reads, no server and no tool can be", () => {
  const mcp = { $api: { tools: [] }, $search: { tools: [] }, then: { tools: [] }, toJSON: { tools: [] }, a: { tools: ["$api", "resources", "prompts", "then", "toJSON", "x", "x", 5] } };
  const cell = start("await MCP.a; MCP.$api(); MCP.a.$api(); return [Reflect.ownKeys(MCP), Reflect.ownKeys(MCP.a), typeof MCP.then, typeof MCP.a.toJSON, typeof MCP.a.resources.read]", withServers(mcp));
  assert.deepEqual(cell.value, [["a", "$api", "$search"], ["x", "$api", "resources", "prompts"], "undefined", "undefined", "function"]);
  assert.deepEqual(cell.requests.map(({ method }) => method), ["mcp.api", "mcp.api"]);
});

test("odd names are looked up as they are and found nowhere", () => {
  assert.deepEqual(
    value(String.raw`return ["\ud800", "\0", "x".repeat(1e6), "a\nb", "mcp", "tools", "🦪"].filter((name) => MCP[name] !== undefined || name in MCP.github)`),
    [],
  );
});

test("a server whose description says nothing of tools is one that was not asked yet", () => {
  const cell = start("Object.prototype.tools = ['forged']; MCP.a.any(); MCP.b.any(); return Object.keys(MCP.a)", withServers({ a: {}, b: { tools: 5 } }));
  assert.deepEqual(cell.value, []);
  assert.equal(cell.requests.length, 2);
});

// Changes.

for (const [title, changes] of Object.entries({
  "MCP": ["MCP.github = 1", "MCP.mine = 1", "delete MCP.github", "Object.freeze(MCP)", "Object.setPrototypeOf(MCP, Array.prototype)", "Object.create(MCP).github = 1"],
  "MCP.github": ["MCP.github.list = 1", "MCP.github.$api = 1", "Object.defineProperty(MCP.github, 'x', { value: 1 })", "delete MCP.github.list"],
})) {
  for (const change of changes) {
    test(`${change}: ${title} is read-only`, () => {
      assert.deepEqual(value(`try { ${change} } catch (error) { return [error.name, error.message, typeof MCP.github.list] }`), ["TypeError", `${title} is read-only`, "function"]);
    });
  }
}

test("resources, prompts and API are frozen", () => {
  assert.deepEqual(value("return [MCP.github.resources, MCP.github.prompts, API].map((object) => [Object.isFrozen(object), Object.keys(object)])"), [
    [true, ["list", "read", "templates"]], [true, ["list", "get"]], [true, ["list", "read"]],
  ]);
});

test("a program may have globals of its own by these names", () => {
  assert.deepEqual(value("const API = 1; globalThis.MCP = 2; return [API, MCP]"), [1, 2]);
});

// What a program missed.

for (const [what, source, message] of [
  ["a server", "await MCP.gitlab.list({})", "cannot read property 'list' of undefined (MCP.gitlab does not exist; servers: github, docs, later)"],
  ["a server as a function", "await MCP.gitlab({})", "not a function (MCP.gitlab does not exist; servers: github, docs, later)"],
  ["a tool's member", "await MCP.github.issues.list({})", "not a function (MCP.github.issues does not exist; see MCP.github.$api())"],
  ["what no server can have", "await MCP.later.constructor({})", "not a function (MCP.later.constructor does not exist; see MCP.later.$api())"],
  ["a member of a tool with a near name", "await MCP.github.lits.all({})", "not a function (MCP.github.lits does not exist; nearest: MCP.github.list; see MCP.github.$api())"],
  ["a server under tools", "await tools.github.list({})", "cannot read property 'list' of undefined (tools.github does not exist; find tools with tools.search(query))"],
  ["the last of several", "tools.a; MCP.b; MCP.github.c; await MCP.d()", "not a function (MCP.d does not exist; servers: github, docs, later)"],
]) {
  test(`an error for want of ${what} says what was missing`, () => {
    const failure = failureOf(`\n${source}`, { shared });
    assert.equal(failure.message, `TypeError: ${message}`);
    assert.match(failure.stack, /cell\.js:2:/);
  });
}

test("a call of an unknown tool is rejected by the host, so that a program that catches the error has its hint", () => {
  const cell = start("return [await MCP.github.close({}).catch((error) => error.message), 'close' in MCP.github, Object.keys(MCP.github).length > 0]", shared);
  assert.deepEqual(cell.requests.map(({ method, input }) => [method, input.path]), [["mcp.call", ["close"]]]);
  cell.deliver([1, false, { message: "nearest: MCP.github.closeIssue" }]);
  assert.deepEqual(cell.value, ["nearest: MCP.github.closeIssue", false, true]);
});

test("at most twenty servers are named, and none when there is none", () => {
  const many = (count) => withServers(Object.fromEntries(Array.from({ length: count }, (_, index) => [`s${index}`, { tools: null }])));
  const hint = (count) => failureOf("MCP.x()", many(count)).message;
  const twenty = Array.from({ length: 20 }, (_, index) => `s${index}`).join(", ");
  assert.equal(hint(20), `TypeError: not a function (MCP.x does not exist; servers: ${twenty})`);
  assert.equal(hint(25), `TypeError: not a function (MCP.x does not exist; servers: ${twenty} and 5 more, see Object.keys(MCP))`);
  assert.equal(hint(0), "TypeError: not a function (MCP.x does not exist; this run has no MCP servers)");
});

test("other failures get no such hint", () => {
  const message = (source) => failureOf(source, { shared }).message;
  assert.equal(message("MCP.missing; null.x"), "TypeError: cannot read property 'x' of null");
  assert.equal(message("MCP.missing; throw new Error('not a function')"), "Error: not a function");
  assert.equal(message("await MCP; await MCP.github; 'x' in MCP; (1)()"), "TypeError: not a function");
  assert.equal(message("MCP.missing; MCP['x'.repeat(1e5)]()"), "TypeError: not a function");
});

// Other VMs, and cost.

test("MCP goes on after a suspension, in another VM", () => {
  const before = start("const { list } = MCP.github; await yield_control(); list({}); MCP.later.any(); return [MCP.github.list === list, Object.keys(MCP)]");
  const after = before.copy();
  after.deliver([1, true, null]);
  assert.deepEqual(after.value, [true, ["github", "docs", "later"]]);
  assert.deepEqual(after.requests.map(({ input }) => [input.server, input.path]), [["github", ["list"]], ["later", ["any"]]]);
});

test("an error that comes back points at the call", () => {
  const cell = start("\n  await MCP.github.list({})");
  cell.deliver([1, false, { name: "ToolError", message: "no", code: "denied", toolId: "mcp:github:list" }]);
  assert.equal(cell.failed[0].message, "ToolError: no");
  assert.equal(cell.failed[0].host, true);
  assert.match(cell.failed[0].stack, /^ {4}at <anonymous> \(cell\.js:2:/);
});

test("a start does as many steps with a thousand servers as with one", () => {
  const interrupts = (count) => {
    const tools = Array.from({ length: 100 }, (_, index) => `tool${index}`);
    const cell = start("return 1", withServers(Object.fromEntries(Array.from({ length: count }, (_, index) => [`s${index}`, { tools }]))));
    return [cell.interrupts, cell.lookups];
  };
  assert.deepEqual(interrupts(1000), interrupts(1));
});
