/**
 * `MCP`: the MCP servers of the run. Each is an object whose functions send requests.
 *
 * A server is described as `{"tools": ["createIssue", ...]}`, or as `{"tools": null}` if the host has not listed its
 * tools yet. Every valid name is a function. The host resolves each call: it may know a tool that was listed since, and
 * its error for an unknown tool names similar ones. A program gains nothing by changing these objects.
 */
import { noteMissing } from "./failures.js";
import { define } from "./globals.js";
import { enumerableKeys, freeze, hasOwn, isArray, objectMemberNames, parseJson, toWellFormed } from "./intrinsics.js";
import { named, put } from "./members.js";
import { nearestHint } from "./nearest.js";
import { isImplicit, readOnly } from "./read_only.js";
import { refuseArgument } from "./refusals.js";
import { showAs } from "./values.js";

const MARKER = "[MCP: see Object.keys(MCP), MCP.$api() and MCP.$search(query)]";
const MAX_HINTED_SERVERS = 20;

/** `shared(part, key)` returns the JSON text of a part or of one member. The result defines the global. */
export function createMcp(shared, request) {
  const helpers = createHelpers(request);
  const servers = createServers(shared, request);
  const MCP = readOnly("MCP", {
    member: (name) => helpers[name] ?? servers.get(name),
    keys: () => withHelpers(servers.names(), helpers),
    isHidden: (name) => name in helpers,
    missed: (name) => noteMissing("MCP", name, () => knownServers(servers.names())),
  });
  showAs(MCP, MARKER);
  return { __proto__: null, install: (global) => define(global, "MCP", MCP) };
}

function createHelpers(request) {
  const api = (given) => {
    // An argument is an error, because it would have no effect.
    if (given !== undefined) {
      return refuseArgument("MCP.$api takes nothing; MCP.<server>.$api(tool) tells of one server", given, api);
    }
    return request("mcp.api", { __proto__: null, server: null, tool: null, schema: false }, api);
  };
  const search = (query, options) => {
    if (typeof query !== "string") return refuseArgument("MCP.$search takes a query as text", query, search);
    return request("mcp.search", { __proto__: null, query, limit: options?.limit }, search);
  };
  return { __proto__: null, $api: named(api, "$api"), $search: named(search, "$search") };
}

/** The servers. They are looked up one by one, or read together when a program lists them. */
function createServers(shared, request) {
  const made = { __proto__: null };
  let all;

  function describe(name) {
    if (all !== undefined) return hasOwn(all, name) ? all[name] : undefined;
    const json = shared("mcp", name);
    return json === undefined ? undefined : parseJson(json);
  }

  function make(name) {
    const description = describe(name);
    if (description === undefined) return undefined;
    return (made[name] = createServer(name, description, request));
  }

  return {
    __proto__: null,
    get: (name) => made[name] ?? make(name),
    names: () => enumerableKeys((all ??= parseJson(shared("mcp") ?? "{}"))),
  };
}

function createServer(name, description, request) {
  const title = "MCP." + toWellFormed(name);
  const helpers = createServerHelpers(name, title, request);
  const functions = { __proto__: null };
  const tools = hasOwn(description, "tools") && isArray(description.tools) ? tableOf(description.tools) : undefined;

  const isKnown = (tool) => tool in helpers || (tools === undefined ? mayBeTool(tool) : tool in tools);

  function toolFunction(tool) {
    if (isKnown(tool) || mayBeTool(tool)) functions[tool] = createCall(name, title, [tool], request);
    return functions[tool];
  }

  const server = readOnly(title, {
    member: (tool) => helpers[tool] ?? functions[tool] ?? toolFunction(tool),
    isKnown,
    keys: () => withHelpers(tools === undefined ? [] : enumerableKeys(tools), helpers),
    isHidden: (tool) => tool in helpers,
    missed: (tool) => noteMissing(title, tool, () => nearestHint(title, tool, tools === undefined ? [] : enumerableKeys(tools)) + "see " + title + ".$api()"),
  });
  showAs(server, "[" + title + ": see " + title + ".$api()]");
  return server;
}

function createServerHelpers(server, title, request) {
  const api = (tool, options) => {
    const isText = typeof tool === "string";
    if (!isText && tool !== undefined && tool !== null) {
      return refuseArgument(title + ".$api takes the name of a tool as text, or nothing", tool, api);
    }
    const schema = options?.schema ? true : false;
    return request("mcp.api", { __proto__: null, server, tool: isText ? tool : null, schema }, api);
  };
  const call = (group, member) => createCall(server, title, [group, member], request);
  const resources = freeze({
    __proto__: null,
    list: call("resources", "list"),
    read: call("resources", "read"),
    templates: call("resources", "templates"),
  });
  const prompts = freeze({ __proto__: null, list: call("prompts", "list"), get: call("prompts", "get") });
  showAs(resources, "[" + title + ".resources: list, read, templates]");
  showAs(prompts, "[" + title + ".prompts: list, get]");
  return { __proto__: null, $api: named(api, "$api"), resources, prompts };
}

/** Create the function at a path of one or two names below a server. */
function createCall(server, title, path, request) {
  const last = path[path.length - 1];
  const call = (input) => {
    if (input === undefined) input = { __proto__: null };
    if (typeof input !== "object" || input === null || isArray(input)) {
      const place = path.length === 1 ? title : title + "." + path[0];
      return refuseArgument(place + "." + toWellFormed(last) + " takes one object", input, call);
    }
    return request("mcp.call", { __proto__: null, server, path, input }, call);
  };
  return named(call, last);
}

/** Return a table with the names that are strings as keys. */
function tableOf(names) {
  const table = { __proto__: null };
  for (let index = 0; index < names.length; index++) {
    if (typeof names[index] === "string") table[names[index]] = true;
  }
  return table;
}

/** Return the names that can be members, followed by the names of the helpers. */
function withHelpers(names, helpers) {
  const found = [];
  let count = 0;
  for (let index = 0; index < names.length; index++) {
    if (!(names[index] in helpers) && !isImplicit(names[index])) put(found, count++, names[index]);
  }
  const added = enumerableKeys(helpers);
  for (let index = 0; index < added.length; index++) put(found, count++, added[index]);
  return found;
}

/** Whether a tool may have this name in programs. Names of ordinary object members are excluded. */
function mayBeTool(name) {
  // Half a surrogate pair would reach the host as another name.
  if (name in objectMemberNames || toWellFormed(name) !== name) return false;
  for (let index = 0; index < name.length; index++) {
    const character = name[index];
    const mayFollow = isBetween(character, "0", "9") || character === "$";
    if (!mayStart(character) && !(mayFollow && index > 0)) return false;
  }
  return name !== "";
}

/** All characters beyond ASCII are allowed, because the host checks the name. */
function mayStart(character) {
  return isBetween(character, "a", "z") || isBetween(character, "A", "Z") || character === "_" || character > "\x7f";
}

function isBetween(character, first, last) {
  return character >= first && character <= last;
}

function knownServers(names) {
  if (names.length === 0) return "this run has no MCP servers";
  let text = "servers: ";
  for (let index = 0; index < names.length && index < MAX_HINTED_SERVERS; index++) {
    text += (index ? ", " : "") + toWellFormed(names[index]);
  }
  const more = names.length - MAX_HINTED_SERVERS;
  return more > 0 ? text + " and " + more + " more, see Object.keys(MCP)" : text;
}
