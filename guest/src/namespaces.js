/**
 * Namespaces: objects whose functions send requests. Each is a global and a member of `namespaces`.
 *
 * The host describes a namespace in JSON. A node is `{"v": value}` for data, `{"o": {key: node}}` for an object,
 * `{"a": [node]}` for an array, or `{"f": true}` for a function. An object is created when a program first reads it,
 * because there may be thousands of functions. A program may change the objects: the host resolves the path of every
 * call again.
 */
import { defineLazy } from "./globals.js";
import { defineProperty, enumerableKeys, hasOwn, isArray, parseJson, preventExtensions, String } from "./intrinsics.js";
import { named, put } from "./members.js";
import { showAs } from "./values.js";

/** `shared(part, key)` returns the JSON text of a description. The result defines the globals. */
export function createNamespaces(shared, request) {
  const made = { __proto__: null };

  function namespace(name) {
    if (!hasOwn(made, name)) {
      const description = shared("namespaces", name);
      const root = { __proto__: null, name, parent: null, key: "" };
      made[name] = description === undefined ? undefined : build(parseJson(description), root);
    }
    return made[name];
  }

  function build(node, place) {
    const kind = kindOf(node);
    if (kind === "v") return node.v;
    if (kind === "f") return callable(place);
    if (kind === "a") return fill([], node.a, place);
    return kind === "o" ? fill({}, node.o, place) : undefined;
  }

  function fill(object, nodes, parent) {
    const keys = enumerableKeys(nodes);
    for (let index = 0; index < keys.length; index++) {
      const key = keys[index];
      const node = nodes[key];
      const place = { __proto__: null, name: parent.name, parent, key };
      if (kindOf(node) === "o") defineLazy(object, key, () => build(node, place), { enumerable: true });
      else put(object, key, build(node, place));
    }
    return object;
  }

  function callable(place) {
    const send = (...args) =>
      request("namespace", { __proto__: null, namespace: place.name, path: pathTo(place), args }, send);
    return named(send, place.parent === null ? place.name : place.key);
  }

  return {
    __proto__: null,
    /** Define one global for each name. The result contains them all; each is created when it is first read. */
    define(global, names) {
      const all = { __proto__: null };
      let shown = "";
      for (let index = 0; isArray(names) && index < names.length; index++) {
        const name = String(names[index]);
        const make = () => namespace(name);
        defineLazy(global, name, make, { enumerable: false });
        defineProperty(all, name, { __proto__: null, get: make, enumerable: true });
        shown += (shown ? ", " : "") + name;
      }
      showAs(all, "[namespaces: " + (shown || "none") + "]");
      return preventExtensions(all);
    },
  };
}

/** Return the only key of a node, or an empty string if it is not a node. */
function kindOf(node) {
  const kinds = enumerableKeys(node);
  return kinds.length === 1 ? kinds[0] : "";
}

/** Return the keys from the namespace to a place. */
function pathTo(place) {
  if (place.parent === null) return [];
  const path = pathTo(place.parent);
  put(path, path.length, place.key);
  return path;
}
