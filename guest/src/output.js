/** `text`, `json`, `image` and `console`: the output of a cell, in the order of the calls. */
import { define } from "./globals.js";
import { indexOfText, sliceText, TypeError } from "./intrinsics.js";
import { toJson, toText, toTextOrNote } from "./values.js";

/**
 * Define the output functions on `global`. `emit(kind, content)` passes one item to the host. Returns the function that
 * makes the JSON text of a value for the model: its images become output.
 */
export function installOutput(global, emit) {
  const emitImage = (mediaType, data) => emit("image", mediaType + "\n" + data);
  const toModelJson = (value) => toJson(value, emitImage);
  const toModelText = (value) => toTextOrNote(value, emitImage);
  const text = (value) => {
    emit("text", toText(value, emitImage));
  };
  const json = (value) => {
    emit("json", toModelJson(value));
  };
  const image = (value) => {
    const { mimeType, data } = readImage(value);
    emitImage(mimeType, data);
  };
  define(global, "text", text);
  define(global, "json", json);
  define(global, "image", image);
  define(global, "console", createConsole(text, toModelText));
  return toModelJson;
}

/** Return the media type and the base64 text of an image. The host checks both. */
function readImage(value) {
  if (typeof value === "string") {
    const end = indexOfText(value, ";base64,");
    if (sliceText(value, 0, 5) === "data:" && end > 0) {
      return { __proto__: null, mimeType: sliceText(value, 5, end), data: sliceText(value, end + 8) };
    }
  } else if (typeof value === "object" && value !== null) {
    const { mimeType, data } = value;
    if (typeof mimeType === "string" && typeof data === "string") {
      return { __proto__: null, mimeType, data };
    }
  }
  throw new TypeError("image takes a data: URL with base64, or {mimeType, data} such as an image part of an MCP result");
}

function createConsole(text, toModelText) {
  const log = function () {
    text(format(arguments, toModelText));
  };
  const console = {
    assert(condition) {
      if (condition) return;
      let message = "Assertion failed";
      for (let index = 1; index < arguments.length; index++) message += " " + toModelText(arguments[index]);
      text(message);
    },
  };
  // All common methods exist, so that no program fails because one is missing.
  const speaking = [
    "log", "info", "warn", "error", "debug", "trace", "dir", "dirxml", "table", "group", "groupCollapsed",
  ];
  const silent = ["groupEnd", "time", "timeEnd", "timeLog", "count", "countReset", "clear"];
  for (let index = 0; index < speaking.length; index++) console[speaking[index]] = log;
  for (let index = 0; index < silent.length; index++) console[silent[index]] = () => {};
  return console;
}

/** Format the arguments as one line. The first may have the placeholders of the console standard. */
function format(values, toModelText) {
  if (values.length === 0) return "";
  let next = 1;
  let line = typeof values[0] === "string" ? fillPlaceholders(values[0]) : toModelText(values[0]);
  for (; next < values.length; next++) line += " " + toModelText(values[next]);
  return line;

  function fillPlaceholders(template) {
    if (values.length === 1) return template;
    let filled = "";
    let start = 0;
    // Search for percent signs instead of reading single characters: a template may be megabytes long.
    for (let at = indexOfText(template, "%"); at >= 0; at = indexOfText(template, "%", at)) {
      // Not `template[at + 1]`, which reads String.prototype past the end.
      const kind = sliceText(template, at + 1, at + 2);
      let filling = "%";
      if (kind === "c" && next < values.length) {
        filling = "";
        next++;
      } else if (isPlaceholder(kind) && next < values.length) filling = toModelText(values[next++]);
      else if (kind !== "%") {
        at++;
        continue;
      }
      filled += sliceText(template, start, at) + filling;
      at += 2;
      start = at;
    }
    return filled + sliceText(template, start);
  }
}

function isPlaceholder(kind) {
  return kind === "s" || kind === "d" || kind === "i" || kind === "f" || kind === "j" || kind === "o" || kind === "O";
}
