/**
 * `ALL_TOOLS` and `tools`: the tool catalog.
 *
 * The worker has the catalog as JSON texts. A part is fetched when a program first reads it, so that a program that
 * does not use a large catalog does not pay for it.
 */
import { noteMissing } from "./failures.js";
import { define, defineLazy } from "./globals.js";
import { enumerableKeys, hasOwn, parseJson } from "./intrinsics.js";
import { named, put } from "./members.js";
import { nearestHint } from "./nearest.js";
import { isImplicit, readOnly } from "./read_only.js";
import { refuseArgument } from "./refusals.js";
import { quoteName, showAs, toJson } from "./values.js";

const MARKER = "[tools: see ALL_TOOLS and tools.search(query)]";

/** `shared(part, key)` returns the JSON text of a part or of one member. The result defines the globals. */
export function createCatalog(shared, request) {
  const tools = createTools(shared, request);
  return {
    __proto__: null,
    install(global) {
      define(global, "tools", tools);
      defineLazy(global, "ALL_TOOLS", () => parseJson(shared("tools") ?? "[]"), { enumerable: false });
    },
  };
}

function createTools(shared, request) {
  const helpers = createHelpers(request);
  const names = createNames(shared);
  const functions = { __proto__: null };

  function toolFunction(name) {
    const id = names.idOf(name);
    if (id === undefined) return undefined;
    const callTool = (input) => sendCall(request, id, input, callTool);
    functions[name] = named(callTool, name);
    return callTool;
  }

  const tools = readOnly("tools", {
    member: (name) => helpers[name] ?? functions[name] ?? toolFunction(name),
    keys: () => names.withHelpers(helpers),
    isHidden: () => false,
    missed: (name) =>
      noteMissing("tools", name, () => nearestHint("tools", name, names.withHelpers(helpers)) + "find tools with tools.search(query)"),
  });
  showAs(tools, MARKER);
  return tools;
}

function createHelpers(request) {
  const search = (query, options) => {
    if (typeof query !== "string") return refuseArgument("tools.search takes a query as text", query, search);
    return request("tools.search", { __proto__: null, query, limit: options?.limit }, search);
  };
  const describe = (id) => {
    if (typeof id !== "string") return refuseArgument("tools.describe takes the id of a tool as text", id, describe);
    return request("tools.describe", { __proto__: null, id }, describe);
  };
  const call = (id, input) => {
    if (typeof id !== "string") return refuseArgument("tools.call takes the id of a tool as text", id, call);
    return sendCall(request, id, input, call);
  };
  return {
    __proto__: null,
    search: named(search, "search"),
    describe: named(describe, "describe"),
    call: named(call, "call"),
  };
}

function sendCall(request, id, input, callee) {
  const json = '{"id":' + quoteName(id) + ',"input":' + (input === undefined ? "{}" : toJson(input, null, 1)) + "}";
  return request("tools.call", undefined, callee, json);
}

/** The names of tools. They are looked up one by one, or read together when a program lists them. */
function createNames(shared) {
  let all;
  let keys;

  function list(helpers) {
    all = parseJson(shared("names") ?? "{}");
    const found = enumerableKeys(helpers);
    let count = found.length;
    const names = enumerableKeys(all);
    for (let index = 0; index < names.length; index++) {
      const name = names[index];
      if (name in helpers || isImplicit(name) || typeof all[name] !== "string") continue;
      put(found, count++, name);
    }
    return found;
  }

  return {
    __proto__: null,
    idOf(name) {
      const id = all === undefined ? parseJson(shared("names", name) ?? "null") : hasOwn(all, name) ? all[name] : null;
      return typeof id === "string" ? id : undefined;
    },
    withHelpers: (helpers) => (keys ??= list(helpers)),
  };
}
