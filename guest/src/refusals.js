/** Promises that are rejected at once: a function that throws instead would slip past `.catch`. */
import { captureStackTrace, isArray, Promise, TypeError } from "./intrinsics.js";

/** Refuse what a program passed to its call of `callee`; `wanted` says what that takes. */
export function refuseArgument(wanted, given, callee) {
  const kind = given === null ? "null" : isArray(given) ? "array" : typeof given;
  return refuse(new TypeError(wanted + "; it was given: " + kind), callee);
}

/** A promise rejected with `error`, which points at the program's call of `callee`. */
export function refuse(error, callee) {
  captureStackTrace(error, callee);
  return new Promise((_resolve, reject) => reject(error));
}
