/** Creates members and arrays without running setters that a program has put on a prototype. */
import { defineProperty } from "./intrinsics.js";

/** Define an ordinary own member of `object`. */
export function put(object, key, value) {
  defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
}

/** Set the name of a function, and return the function. */
export function named(callable, name) {
  return defineProperty(callable, "name", { __proto__: null, value: name });
}

/** Return an array of the arguments from `start` on. */
export function argumentsFrom(args, start) {
  const list = [];
  for (let index = start; index < args.length; index++) put(list, index - start, args[index]);
  return list;
}
