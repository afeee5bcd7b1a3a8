/** Defines globals of a cell. */
import { defineProperty, String, tryDefineProperty } from "./intrinsics.js";

/** Define a global as in a browser: not enumerable, and a program may replace it. */
export function define(global, name, value) {
  if (typeof value === "function") defineProperty(value, "name", { __proto__: null, value: String(name) });
  defineProperty(global, name, { __proto__: null, value, enumerable: false, writable: true, configurable: true });
}

/** Define a member that is created when a program first reads it. A program may replace it. */
export function defineLazy(object, name, make, { enumerable }) {
  let isMade = false;
  let made;
  const settle = (value) => {
    isMade = true;
    made = value;
    // This fails if the program has frozen the object; the accessor then stays.
    tryDefineProperty(object, name, { __proto__: null, value, enumerable, writable: true, configurable: true });
  };
  const get = () => {
    if (!isMade) settle(make());
    return made;
  };
  defineProperty(object, name, { __proto__: null, get, set: settle, enumerable, configurable: true });
}
