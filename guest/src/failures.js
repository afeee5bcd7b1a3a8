/** Describes an error that ended a cell, as JSON for the host, and adds hints to errors for missing members. */
import {
  defineProperty,
  Error,
  getPrototypeOf,
  internalErrorPrototype,
  quoteJson,
  setStackHook,
  sliceText,
  toWellFormed,
  weakSetAdd,
  weakSetHas,
} from "./intrinsics.js";
import { errorText, isErrorValue, textProperty, toTextOrNote } from "./values.js";

const MAX_HINTED_CHARACTERS = 100;

const hostErrors = new WeakSet();
const moduleErrors = new WeakSet();
let missing = null;

/** Record that this error comes from the host. A program cannot forge that. */
export function noteHostError(error) {
  weakSetAdd(hostErrors, error);
}

/** Create the error of a program that tried to access a module. A program cannot forge that. */
export function moduleError(tried) {
  const error = new Error("module access is disabled in cells: " + tried);
  weakSetAdd(moduleErrors, error);
  return error;
}

/**
 * Record that a program read `owner.name`, which does not exist. `advice()` returns a hint.
 *
 * The next error that may come from it gets the hint when it is created, so that a program that catches it has it, too.
 */
export function noteMissing(owner, name, advice) {
  missing = name.length > MAX_HINTED_CHARACTERS ? null : { __proto__: null, owner, name, advice };
  setStackHook(Error, missing === null ? undefined : addHint);
}

/** The stack hook. Returns the text that the engine would make of the frames. */
function addHint(error, frames) {
  const message = textProperty(error, "message");
  if (isErrorValue(error) && textProperty(error, "name") === "TypeError" && isForWantOfMember(message)) {
    const value = message + missingHint();
    setStackHook(Error, undefined);
    defineProperty(error, "message", { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  }
  let stack = "";
  for (let index = 0; index < frames.length; index++) stack += "    at " + frameText(frames[index]) + "\n";
  return stack;
}

function frameText(frame) {
  const name = frame.getFunctionName() || "<anonymous>";
  if (frame.isNative()) return name + " (native)";
  return name + " (" + frame.getFileName() + ":" + frame.getLineNumber() + ":" + frame.getColumnNumber() + ")";
}

/**
 * Return JSON text `{message, stack, memory, modules, host}` for any thrown value. The last three say whether the cell
 * ran out of memory, tried to access a module, or failed with an error that the host returned for a request. `memory`
 * is null if the host has to find out: with its memory full, the engine throws null.
 */
export function describeFailure(thrown) {
  if (thrown === null) return failureJson("thrown: null", "", null, false, false);
  // The engine throws a value of no JavaScript type if it has no memory for an error. Programs cannot create one.
  if (typeof thrown === "unknown") return failureJson("InternalError: out of memory", "", true, false, false);
  if (!isErrorValue(thrown)) return failureJson("thrown: " + toTextOrNote(thrown), "", false, false, false);
  return failureJson(
    errorText(thrown),
    textProperty(thrown, "stack"),
    // Only the engine creates such errors, when a program needs more memory than it may have: programs get no constructor.
    getPrototypeOf(thrown) === internalErrorPrototype,
    weakSetHas(moduleErrors, thrown),
    weakSetHas(hostErrors, thrown),
  );
}

function isForWantOfMember(message) {
  if (message === "not a function") return true;
  return startsWith(message, "cannot read property ") && endsWith(message, " of undefined");
}

function missingHint() {
  try {
    return " (" + missing.owner + "." + toWellFormed(missing.name) + " does not exist; " + missing.advice() + ")";
  } catch {
    // The hint needs memory, and the program may have used all of it.
    return "";
  }
}

// Without JSON.stringify, which runs setters that a program may have put on Array.prototype.
function failureJson(message, stack, memory, modules, host) {
  const texts = '"message":' + quoteJson(message) + ',"stack":' + quoteJson(stack);
  return "{" + texts + ',"memory":' + memory + ',"modules":' + modules + ',"host":' + host + "}";
}

function startsWith(text, prefix) {
  return sliceText(text, 0, prefix.length) === prefix;
}

function endsWith(text, suffix) {
  return sliceText(text, -suffix.length) === suffix;
}
