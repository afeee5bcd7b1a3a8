/** How the guest puts its names on `globalThis`. */
import { defineProperty, String } from "./intrinsics.js";

/** A global like a browser's: not enumerable, and a program may replace it for itself. */
export function define(global, name, value) {
  if (typeof value === "function") defineProperty(value, "name", { __proto__: null, value: String(name) });
  defineProperty(global, name, { __proto__: null, value, enumerable: false, writable: true, configurable: true });
}
