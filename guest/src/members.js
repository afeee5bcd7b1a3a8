/** Arrays, objects and functions for programs, made without running a setter that a program put on a prototype. */
import { defineProperty } from "./intrinsics.js";

/** Give `object` an ordinary member of its own. */
export function put(object, key, value) {
  defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
}

/** `callable`, with the name by which a program knows it. */
export function named(callable, name) {
  return defineProperty(callable, "name", { __proto__: null, value: name });
}

/** An array of the arguments from `start` on. */
export function argumentsFrom(args, start) {
  const list = [];
  for (let index = start; index < args.length; index++) put(list, index - start, args[index]);
  return list;
}
