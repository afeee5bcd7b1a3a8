/** Arrays and objects for programs, filled without running a setter that a program put on a prototype. */
import { defineProperty } from "./intrinsics.js";

/** Give `object` an ordinary member of its own. */
export function put(object, key, value) {
  defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
}

/** An array of the arguments from `start` on. */
export function argumentsFrom(args, start) {
  const list = [];
  for (let index = start; index < args.length; index++) put(list, index - start, args[index]);
  return list;
}
