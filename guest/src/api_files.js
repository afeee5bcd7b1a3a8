/**
 * `API`: virtual declaration files for programs.
 *
 * The part "api" has the known texts by path. "apiComplete" names the folders that have no other files; an empty name
 * means all folders. For other folders and for unknown paths, a request is sent to the host.
 */
import { define } from "./globals.js";
import { enumerableKeys, Error, freeze, indexOfText, parseJson, Promise, quoteJson, sliceText, toWellFormed } from "./intrinsics.js";
import { named, put } from "./members.js";
import { refuse, refuseArgument } from "./refusals.js";
import { showAs } from "./values.js";

const MARKER = "[API: see API.list(prefix) and API.read(path)]";
const MAX_SHOWN_CHARACTERS = 200;

/** `shared(part, key)` returns the JSON text of a part or of one member. The result defines the global. */
export function createApiFiles(shared, request) {
  const files = createFiles(shared);

  const list = (prefix = "") => {
    if (typeof prefix !== "string") {
      return refuseArgument("API.list takes the start of a path as text, or nothing", prefix, list);
    }
    const folder = withoutLastSlash(prefix);
    if (folder !== "" && !isPlain(folder)) return refuse(notPlain("API.list", prefix), list);
    if (!files.areComplete(folder)) return request("api.list", { __proto__: null, prefix: folder }, list);
    return resolved(files.below(folder));
  };
  const read = (path) => {
    if (typeof path !== "string") return refuseArgument("API.read takes a path as text", path, read);
    if (!isPlain(path)) return refuse(notPlain("API.read", path), read);
    const text = files.text(path);
    if (text !== undefined) return resolved(text);
    // Also for a path that does not exist: the host knows which path is similar.
    return request("api.read", { __proto__: null, path }, read);
  };

  const API = freeze({ __proto__: null, list: named(list, "list"), read: named(read, "read") });
  showAs(API, MARKER);
  return { __proto__: null, install: (global) => define(global, "API", API) };
}

function createFiles(shared) {
  let sizes;
  const isMarked = (folder) => shared("apiComplete", folder) === "true";

  /** Return the length of each text by path. The texts are not stored, because a snapshot would contain them. */
  function measure() {
    const texts = parseJson(shared("api") ?? "{}");
    const paths = enumerableKeys(texts);
    const found = { __proto__: null };
    for (let index = 0; index < paths.length; index++) {
      const text = texts[paths[index]];
      if (typeof text === "string") found[paths[index]] = text.length;
    }
    return found;
  }

  return {
    __proto__: null,
    areComplete: (path) => isMarked("") || isMarked(firstName(path)),
    text(path) {
      const json = shared("api", path);
      const text = json === undefined ? undefined : parseJson(json);
      return typeof text === "string" ? text : undefined;
    },
    /** Return `{path, size}` for each file in a folder, at any depth. For the path of a file, return this file. */
    below(folder) {
      sizes ??= measure();
      const paths = enumerableKeys(sizes);
      const found = [];
      let count = 0;
      for (let index = 0; index < paths.length; index++) {
        const path = paths[index];
        if (isBelow(path, folder)) put(found, count++, { path, size: sizes[path] });
      }
      return found;
    },
  };
}

function firstName(path) {
  const end = indexOfText(path, "/");
  return end < 0 ? path : sliceText(path, 0, end);
}

function isBelow(path, folder) {
  if (folder === "" || path === folder) return true;
  return sliceText(path, 0, folder.length + 1) === folder + "/";
}

/** Whether a path consists of names only: none is empty, `.` or `..`, and there are no backslashes. */
function isPlain(path) {
  let start = 0;
  for (let index = 0; index <= path.length; index++) {
    const character = index < path.length ? path[index] : "/";
    if (character === "\\" || character === "\0") return false;
    if (character !== "/") continue;
    const size = index - start;
    const isDots = (size === 1 || size === 2) && path[start] === "." && path[index - 1] === ".";
    if (size === 0 || isDots) return false;
    start = index + 1;
  }
  return true;
}

/** Remove the trailing slash of a folder. */
function withoutLastSlash(prefix) {
  const last = prefix.length - 1;
  return last > 0 && prefix[last] === "/" ? sliceText(prefix, 0, last) : prefix;
}

function notPlain(callee, path) {
  const wanted = " takes a path such as mcp/index.d.ts, without . or .. or empty names; it was given: ";
  return new Error(callee + wanted + shown(path));
}

function shown(path) {
  if (path.length <= MAX_SHOWN_CHARACTERS) return quoteJson(toWellFormed(path));
  return quoteJson(toWellFormed(sliceText(path, 0, MAX_SHOWN_CHARACTERS))) + "... (" + path.length + " characters)";
}

function resolved(value) {
  return new Promise((resolve) => resolve(value));
}
