/** What the host learns of an error that ended a cell, as plain JSON. */
import { quoteJson, weakSetAdd, weakSetHas } from "./intrinsics.js";
import { errorText, isErrorValue, textProperty, toTextOrNote } from "./values.js";

/** The first words of every refusal of module access, the host's own too: `modules` is told by them. */
export const MODULES_DISABLED = "module access is disabled in cells";

const hostErrors = new WeakSet();

/** Remember that the host made this error: a program cannot pass one of its own for it. */
export function noteHostError(error) {
  weakSetAdd(hostErrors, error);
}

/**
 * JSON text `{message, stack, memory, modules, host}` for any thrown value; never throws for want of sense in it. The
 * last three say whether it ended the cell for want of memory, by a refusal of module access, or as an error that the
 * host had answered a request with. `hint` follows the message of a call of something that is no function.
 */
export function describeFailure(thrown, hint) {
  if (!isErrorValue(thrown)) return failureJson("thrown: " + toTextOrNote(thrown), "", false, false, false);
  const name = textProperty(thrown, "name");
  const message = textProperty(thrown, "message");
  const isNoFunction = name === "TypeError" && message === "not a function";
  return failureJson(
    errorText(thrown) + (isNoFunction && hint ? " (" + hint + ")" : ""),
    textProperty(thrown, "stack"),
    message === "out of memory" && name === "InternalError",
    message.length >= MODULES_DISABLED.length && startsWith(message, MODULES_DISABLED),
    weakSetHas(hostErrors, thrown),
  );
}

// By hand: JSON.stringify of an object runs setters that a program put on Array.prototype.
function failureJson(message, stack, memory, modules, host) {
  const texts = '"message":' + quoteJson(message) + ',"stack":' + quoteJson(stack);
  return "{" + texts + ',"memory":' + memory + ',"modules":' + modules + ',"host":' + host + "}";
}

function startsWith(text, prefix) {
  for (let index = 0; index < prefix.length; index++) if (text[index] !== prefix[index]) return false;
  return true;
}
