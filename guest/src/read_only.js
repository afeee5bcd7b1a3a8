/** Read-only objects whose members are looked up when a program reads them. */
import { Proxy, TypeError } from "./intrinsics.js";

/**
 * Create an object without a prototype; `title` is its name in error messages. `member(name)` returns a member or
 * undefined, always the same one. `keys()` returns all names; `Object.keys` omits those with `isHidden(name)`.
 * `missed(name)` is called when a program reads a name that does not exist. A member for which `isKnown(name)` is
 * false can be read, but `in` and `Object.hasOwn` do not find it.
 */
export function readOnly(title, { member, keys, isHidden, missed, isKnown = () => true }) {
  const find = (name) => (typeof name !== "string" || isImplicit(name) ? undefined : member(name));
  const refuseChange = () => {
    throw new TypeError(title + " is read-only");
  };
  return new Proxy({ __proto__: null }, {
    __proto__: null,
    get(_target, name) {
      const found = find(name);
      const isMissing = found === undefined || !isKnown(name);
      if (isMissing && typeof name === "string" && !isImplicit(name)) missed(name);
      return found;
    },
    has: (_target, name) => find(name) !== undefined && isKnown(name),
    ownKeys: keys,
    getOwnPropertyDescriptor(_target, name) {
      const value = find(name);
      if (value === undefined || !isKnown(name)) return undefined;
      return { __proto__: null, value, writable: false, enumerable: !isHidden(name), configurable: true };
    },
    set: refuseChange,
    defineProperty: refuseChange,
    deleteProperty: refuseChange,
    preventExtensions: refuseChange,
    setPrototypeOf: (_target, prototype) => prototype === null || refuseChange(),
  });
}

/** Whether JavaScript itself reads the name, for example when the object is awaited or written as JSON. */
export function isImplicit(name) {
  return name === "then" || name === "toJSON";
}
