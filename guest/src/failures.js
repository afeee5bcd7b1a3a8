/** What the host learns of an error that ended a cell, as plain JSON. */
import { quoteJson } from "./intrinsics.js";
import { errorText, isErrorValue, textProperty, toTextOrNote } from "./values.js";

/** The first words of every refusal of module access, the host's own too: `modules` is told by them. */
export const MODULES_DISABLED = "module access is disabled in cells";

/**
 * JSON text `{message, stack, memory, modules}` for any thrown value; never throws for want of sense in it. The last
 * two say whether it ended the cell for want of memory or by a refusal of module access.
 */
export function describeFailure(thrown) {
  if (!isErrorValue(thrown)) return failureJson("thrown: " + toTextOrNote(thrown), "", false, false);
  const message = textProperty(thrown, "message");
  return failureJson(
    errorText(thrown),
    textProperty(thrown, "stack"),
    message === "out of memory" && textProperty(thrown, "name") === "InternalError",
    message.length >= MODULES_DISABLED.length && startsWith(message, MODULES_DISABLED),
  );
}

// By hand: JSON.stringify of an object runs setters that a program put on Array.prototype.
function failureJson(message, stack, memory, modules) {
  const texts = '"message":' + quoteJson(message) + ',"stack":' + quoteJson(stack);
  return "{" + texts + ',"memory":' + memory + ',"modules":' + modules + "}";
}

function startsWith(text, prefix) {
  for (let index = 0; index < prefix.length; index++) if (text[index] !== prefix[index]) return false;
  return true;
}
