/**
 * `ALL_TOOLS` and `tools`: the host's catalog, as far as a program touches it.
 *
 * The catalog lies with the worker, as JSON texts. Nothing of it is fetched before a program reads it, so that a
 * program that does not look at a large catalog does not pay for it.
 */
import { define, defineLazy } from "./globals.js";
import {
  captureStackTrace,
  defineProperty,
  enumerableKeys,
  hasOwn,
  isArray,
  parseJson,
  Promise,
  toWellFormed,
  TypeError,
} from "./intrinsics.js";
import { put } from "./members.js";
import { showAs } from "./values.js";

const MARKER = "[tools: see ALL_TOOLS and tools.search(query)]";
const MAX_HINTED_CHARACTERS = 100;

/**
 * `shared(part, key)` is the JSON text of a part of the catalog, or of one member of it. The result defines the globals,
 * and knows what to say of a tool that a program missed.
 */
export function createCatalog(shared, request) {
  const { tools, missingToolHint } = createTools(shared, request);
  return {
    __proto__: null,
    missingToolHint,
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
  let missing = "";

  function member(name) {
    if (typeof name !== "string" || isImplicit(name)) return undefined;
    return helpers[name] ?? functions[name] ?? toolFunction(name);
  }

  function toolFunction(name) {
    const id = names.idOf(name);
    if (id === undefined) return undefined;
    const callTool = (input) => sendCall(request, id, input, callTool);
    functions[name] = named(callTool, name);
    return callTool;
  }

  const tools = new Proxy({ __proto__: null }, {
    __proto__: null,
    get(_target, name) {
      const found = member(name);
      if (found === undefined && typeof name === "string" && !isImplicit(name)) missing = name;
      return found;
    },
    has: (_target, name) => member(name) !== undefined,
    ownKeys: () => names.withHelpers(helpers),
    getOwnPropertyDescriptor(_target, name) {
      const value = member(name);
      if (value === undefined) return undefined;
      return { __proto__: null, value, writable: false, enumerable: true, configurable: true };
    },
    set: refuseChange,
    defineProperty: refuseChange,
    deleteProperty: refuseChange,
    preventExtensions: refuseChange,
    setPrototypeOf: (_target, prototype) => prototype === null || refuseChange(),
  });
  showAs(tools, MARKER);

  return {
    __proto__: null,
    tools,
    /** What to say when a program called something that is no function; empty when it missed no tool before. */
    missingToolHint() {
      if (missing === "" || missing.length > MAX_HINTED_CHARACTERS) return "";
      return "tools." + toWellFormed(missing) + " does not exist; find tools with tools.search(query)";
    },
  };
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
  return request("tools.call", { __proto__: null, id, input: input === undefined ? { __proto__: null } : input }, callee);
}

/** The names of tools that are safe to call by: asked for one by one, or all together once a program lists them. */
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

/** Whether JavaScript itself reads the name: such a tool would run whenever `tools` is awaited or written as JSON. */
function isImplicit(name) {
  return name === "then" || name === "toJSON";
}

function named(callable, name) {
  return defineProperty(callable, "name", { __proto__: null, value: name });
}

function refuseChange() {
  throw new TypeError("tools is read-only");
}

/** A promise that is rejected: a helper that throws at once would slip past `.catch`. */
function refuseArgument(wanted, given, callee) {
  const kind = given === null ? "null" : isArray(given) ? "array" : typeof given;
  const error = new TypeError(wanted + "; it was given: " + kind);
  captureStackTrace(error, callee);
  return new Promise((_resolve, reject) => reject(error));
}
