/** Rejected promises for invalid calls. `.catch` would not handle an error that the function throws. */
import { captureStackTrace, isArray, Promise, TypeError } from "./intrinsics.js";

/** Reject a call of `callee` with an invalid argument. `wanted` describes the valid arguments. */
export function refuseArgument(wanted, given, callee) {
  const kind = given === null ? "null" : isArray(given) ? "array" : typeof given;
  return refuse(new TypeError(wanted + "; it was given: " + kind), callee);
}

/** Return a promise that is rejected with `error`. Its stack starts at the program's call of `callee`. */
export function refuse(error, callee) {
  captureStackTrace(error, callee);
  return new Promise((_resolve, reject) => reject(error));
}
