/** How the guest puts its names on `globalThis`. */
import { defineProperty, String, tryDefineProperty } from "./intrinsics.js";

/** A global like a browser's: not enumerable, and a program may replace it for itself. */
export function define(global, name, value) {
  if (typeof value === "function") defineProperty(value, "name", { __proto__: null, value: String(name) });
  defineProperty(global, name, { __proto__: null, value, enumerable: false, writable: true, configurable: true });
}

/** A member that is made when a program first reads it; a program may replace it for itself before and after. */
export function defineLazy(object, name, make, { enumerable }) {
  let isMade = false;
  let made;
  const settle = (value) => {
    isMade = true;
    made = value;
    // A program may have frozen the object: then the accessor stays.
    tryDefineProperty(object, name, { __proto__: null, value, enumerable, writable: true, configurable: true });
  };
  const get = () => {
    if (!isMade) settle(make());
    return made;
  };
  defineProperty(object, name, { __proto__: null, get, set: settle, enumerable, configurable: true });
}
