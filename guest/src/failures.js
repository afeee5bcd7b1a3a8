/** Describes an error that ended a cell, as JSON for the host, and adds hints to errors for missing members. */
import {
  defineProperty,
  Error,
  quoteJson,
  setStackHook,
  sliceText,
  toWellFormed,
  weakSetAdd,
  weakSetHas,
} from "./intrinsics.js";
import { errorText, isErrorValue, textProperty, toTextOrNote } from "./values.js";

/** The start of all error messages about module access, also of the host. `modules` is derived from it. */
export const MODULES_DISABLED = "module access is disabled in cells";

const MAX_HINTED_CHARACTERS = 100;

const hostErrors = new WeakSet();
let missing = null;

/** Record that this error comes from the host. A program cannot forge that. */
export function noteHostError(error) {
  weakSetAdd(hostErrors, error);
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
 * ran out of memory, tried to access a module, or failed with an error that the host returned for a request.
 */
export function describeFailure(thrown) {
  if (!isErrorValue(thrown)) return failureJson("thrown: " + toTextOrNote(thrown), "", false, false, false);
  const name = textProperty(thrown, "name");
  const message = textProperty(thrown, "message");
  return failureJson(
    errorText(thrown),
    textProperty(thrown, "stack"),
    message === "out of memory" && name === "InternalError",
    startsWith(message, MODULES_DISABLED),
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
