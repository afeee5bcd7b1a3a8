/** What the host learns of an error that ended a cell, as plain JSON. */
import { quoteJson, sliceText, toWellFormed, weakSetAdd, weakSetHas } from "./intrinsics.js";
import { errorText, isErrorValue, textProperty, toTextOrNote } from "./values.js";

/** The first words of every refusal of module access, the host's own too: `modules` is told by them. */
export const MODULES_DISABLED = "module access is disabled in cells";

const MAX_HINTED_CHARACTERS = 100;

const hostErrors = new WeakSet();
let missing = null;

/** Remember that the host made this error: a program cannot pass one of its own for it. */
export function noteHostError(error) {
  weakSetAdd(hostErrors, error);
}

/** Remember that a program read `owner.name`, which does not exist; `advice()` says what to do instead. */
export function noteMissing(owner, name, advice) {
  missing = name.length > MAX_HINTED_CHARACTERS ? null : { __proto__: null, owner, name, advice };
}

/**
 * JSON text `{message, stack, memory, modules, host}` for any thrown value; never throws for want of sense in it. The
 * last three say whether it ended the cell for want of memory, by a refusal of module access, or as an error that the
 * host had answered a request with. A message that may come of a member that does not exist names the one read last.
 */
export function describeFailure(thrown) {
  if (!isErrorValue(thrown)) return failureJson("thrown: " + toTextOrNote(thrown), "", false, false, false);
  const name = textProperty(thrown, "name");
  const message = textProperty(thrown, "message");
  return failureJson(
    errorText(thrown) + (name === "TypeError" && isForWantOfMember(message) ? missingHint() : ""),
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
  if (missing === null) return "";
  try {
    return " (" + missing.owner + "." + toWellFormed(missing.name) + " does not exist; " + missing.advice() + ")";
  } catch {
    // Advice needs memory, and the program may have used it up.
    return "";
  }
}

// By hand: JSON.stringify of an object runs setters that a program put on Array.prototype.
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
