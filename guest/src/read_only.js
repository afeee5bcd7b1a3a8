/** Objects that programs read and cannot change: their members are found when a program asks for one. */
import { Proxy, TypeError } from "./intrinsics.js";

/**
 * An object without a prototype, called `title` in refusals. `member(name)` is what it has by a name, or undefined, and
 * the same each time; `keys()` are the names to list, those without the ones that `isHidden(name)` by `Object.keys`;
 * `missed(name)` hears of every name that was read in vain.
 */
export function readOnly(title, { member, keys, isHidden, missed }) {
  const find = (name) => (typeof name !== "string" || isImplicit(name) ? undefined : member(name));
  const refuseChange = () => {
    throw new TypeError(title + " is read-only");
  };
  return new Proxy({ __proto__: null }, {
    __proto__: null,
    get(_target, name) {
      const found = find(name);
      if (found === undefined && typeof name === "string" && !isImplicit(name)) missed(name);
      return found;
    },
    has: (_target, name) => find(name) !== undefined,
    ownKeys: keys,
    getOwnPropertyDescriptor(_target, name) {
      const value = find(name);
      if (value === undefined) return undefined;
      return { __proto__: null, value, writable: false, enumerable: !isHidden(name), configurable: true };
    },
    set: refuseChange,
    defineProperty: refuseChange,
    deleteProperty: refuseChange,
    preventExtensions: refuseChange,
    setPrototypeOf: (_target, prototype) => prototype === null || refuseChange(),
  });
}

/** Whether JavaScript itself reads the name: such a tool would run whenever its object is awaited or written as JSON. */
export function isImplicit(name) {
  return name === "then" || name === "toJSON";
}
