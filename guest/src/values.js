/**
 * The one mapping from JavaScript values to JSON text; docs/cells.md has it as a table.
 *
 * Values come from hostile programs: getters, proxies and `toJSON` may throw or never return. What they throw
 * goes to the caller; what never returns is stopped by the host's time limit.
 */
import {
  arrayBufferBytes,
  bigintToText,
  booleanOf,
  captureStackTrace,
  dataViewBytes,
  dateToIso,
  dateValue,
  enumerableKeys,
  getPrototypeOf,
  isArray,
  isError,
  isView,
  mapForEach,
  mapSize,
  numberOf,
  parseJson,
  quoteJson,
  RangeError,
  reflectApply,
  regExpToText,
  setForEach,
  setHas,
  setSize,
  sliceText,
  slottedPrototypes,
  String,
  stringOf,
  symbolToText,
  tagOf,
  toWellFormed,
  typedArrayLength,
  typedArrayName,
  weakMapGet,
  weakMapHas,
  weakMapSet,
  weakSetHas,
} from "./intrinsics.js";

// The host refuses deeper JSON, and so do many parsers behind it.
const MAX_DEPTH = 256;

const markers = new WeakMap();

/** Have an object of the guest's own shown by a short text in place of all that is in it. */
export function showAs(object, text) {
  weakMapSet(markers, object, text);
}

/** The JSON text of `value`; a value that JSON lacks becomes its documented stand-in. */
export function toJson(value) {
  return encode(value, null, 0) ?? "null";
}

/** What a person reads: a string as it is, anything else in the same mapping. */
export function toText(value) {
  if (typeof value === "string") return toWellFormed(value);
  if (value === undefined) return "undefined";
  if (typeof value === "number") return String(value);
  if (isErrorValue(value)) return errorText(value);
  const json = toJson(value);
  // A marker such as [Function f], a date or a URL is text already: no quotes around it.
  return json[0] === '"' ? parseJson(json) : json;
}

/** The same for values that must be shown whatever they do: one that throws becomes a note. */
export function toTextOrNote(value) {
  try {
    return toText(value);
  } catch {
    return "a value that cannot be shown";
  }
}

/** `Name: message`, whatever the program did to the error. */
export function errorText(error) {
  const name = textProperty(error, "name");
  const message = textProperty(error, "message");
  if (!name) return message;
  return message ? name + ": " + message : name;
}

/** Errors of the engine and DOMException, which QuickJS does not count among them. */
export function isErrorValue(value) {
  if (isError(value)) return true;
  try {
    return typeof value === "object" && value !== null && tagOf(value) === "[object DOMException]";
  } catch {
    return false;
  }
}

export function textProperty(object, key) {
  try {
    const value = object[key];
    return typeof value === "string" ? toWellFormed(value) : "";
  } catch {
    return "";
  }
}

/** JSON text, or undefined where JSON.stringify would leave a property out. */
function encode(value, ancestors, depth) {
  switch (typeof value) {
    case "string":
      return quoteJson(toWellFormed(value));
    case "number":
    case "boolean":
      return quoteJson(value);
    case "undefined":
      return undefined;
    case "object":
      if (value === null) return "null";
      return encodeObject(value, ancestors, depth);
    default:
      return quoteJson(standIn(value));
  }
}

function encodeObject(value, ancestors, depth) {
  if (depth >= MAX_DEPTH) throw nestedTooDeep();
  for (let seen = ancestors; seen !== null; seen = seen.next) {
    if (seen.value === value) return '"[Circular]"';
  }
  const marker = weakMapGet(markers, value);
  if (marker !== undefined) return quoteJson(marker);
  const path = { __proto__: null, value, next: ancestors };
  if (isArray(value)) return encodeArray(value, path, depth);
  if (isErrorValue(value)) {
    const name = quoteJson(textProperty(value, "name"));
    return '{"name":' + name + ',"message":' + quoteJson(textProperty(value, "message")) + "}";
  }
  if (mayHaveSlots(value)) {
    const text = standIn(value);
    if (text !== undefined) return text === null ? "null" : quoteJson(text);
    if (has(mapSize, value)) return encodeMap(value, path, depth);
    if (has(setSize, value)) return encodeSet(value, path, depth);
    const primitive = boxedPrimitive(value);
    if (primitive !== undefined) return encode(primitive, path, depth + 1);
  }
  const toJsonMethod = value.toJSON;
  if (typeof toJsonMethod === "function") {
    const replacement = reflectApply(toJsonMethod, value, [""]);
    if (replacement !== value) return encode(replacement, path, depth + 1);
  }
  return encodeProperties(value, path, depth);
}

/** The error for a value beyond MAX_DEPTH; its stack is the caller's, not ten frames of this recursion. */
function nestedTooDeep() {
  const error = new RangeError("value is nested deeper than " + MAX_DEPTH + " levels");
  captureStackTrace(error, toJson);
  return error;
}

function encodeArray(array, path, depth) {
  const { length } = array;
  let json = "[";
  for (let index = 0; index < length; index++) {
    json += (index ? "," : "") + (encode(array[index], path, depth + 1) ?? "null");
  }
  return json + "]";
}

function encodeProperties(object, path, depth) {
  const names = enumerableKeys(object);
  if (names.length === 0) return emptyObject(object);
  let json = "";
  for (let index = 0; index < names.length; index++) {
    const item = encode(object[names[index]], path, depth + 1);
    if (item !== undefined) json += (json ? "," : "") + quoteJson(toWellFormed(names[index])) + ":" + item;
  }
  return "{" + json + "}";
}

/** Iterators and other opaque objects say what they are; a plain empty object stays one. */
function emptyObject(object) {
  const tag = sliceText(tagOf(object), 8, -1);
  if (tag === "Object") return "{}";
  if (tag === "URLSearchParams") return quoteJson(toWellFormed(String(object)));
  return quoteJson("[" + toWellFormed(tag) + "]");
}

/** Text keys make an object; any other key makes a list of pairs. */
function encodeMap(map, path, depth) {
  // Encoded after `forEach`, not in it: its frames at every level would use up the stack before MAX_DEPTH.
  const keys = { __proto__: null };
  const items = { __proto__: null };
  let count = 0;
  mapForEach(map, (item, key) => {
    keys[count] = key;
    items[count++] = item;
  });
  let asObject = "";
  let asPairs = "";
  let allText = true;
  for (let index = 0; index < count; index++) {
    const key = keys[index];
    const value = encode(items[index], path, depth + 1) ?? "null";
    if (typeof key === "string") {
      asObject += (asObject ? "," : "") + quoteJson(toWellFormed(key)) + ":" + value;
    } else allText = false;
    asPairs += (asPairs ? ",[" : "[") + (encode(key, path, depth + 1) ?? "null") + "," + value + "]";
  }
  return allText ? "{" + asObject + "}" : "[" + asPairs + "]";
}

function encodeSet(set, path, depth) {
  const items = { __proto__: null };
  let count = 0;
  setForEach(set, (item) => {
    items[count++] = item;
  });
  let json = "";
  for (let index = 0; index < count; index++) {
    json += (json ? "," : "") + (encode(items[index], path, depth + 1) ?? "null");
  }
  return "[" + json + "]";
}

/** The text that stands for a value JSON lacks; null for an invalid date; undefined for all other values. */
function standIn(value) {
  switch (typeof value) {
    case "bigint":
      return bigintToText(value);
    case "symbol":
      return symbolToText(value);
    case "function": {
      const name = textProperty(value, "name");
      return name ? "[Function " + name + "]" : "[Function]";
    }
    case "object":
      return value === null ? undefined : objectStandIn(value);
    default:
      return undefined;
  }
}

function objectStandIn(value) {
  if (isView(value)) {
    const name = typedArrayName(value);
    if (name) return "[" + name + "(" + typedArrayLength(value) + ")]";
    // The view of a detached buffer has no length to ask for.
    return "[DataView(" + (has(dataViewBytes, value) ? dataViewBytes(value) : 0) + ")]";
  }
  if (has(arrayBufferBytes, value)) return "[ArrayBuffer(" + arrayBufferBytes(value) + ")]";
  if (has(dateValue, value)) return dateValue(value) === dateValue(value) ? dateToIso(value) : null;
  const tag = sliceText(tagOf(value), 8, -1);
  if (tag === "RegExp") return has(regExpToText, value) ? toWellFormed(regExpToText(value)) : undefined;
  // By its tag alone: asking the promise itself would mark it as handled.
  if (tag === "Promise") return "[Promise]";
  if (has(weakMapProbe, value)) return "[WeakMap]";
  if (has(weakSetProbe, value)) return "[WeakSet]";
  return undefined;
}

const probeKey = {};
const weakMapProbe = (value) => weakMapHas(value, probeKey);
const weakSetProbe = (value) => weakSetHas(value, probeKey);

/** Whether `value` can have internal slots at all: asking for each one that it lacks costs a thrown error. */
function mayHaveSlots(value) {
  for (let prototype = getPrototypeOf(value); prototype !== null; prototype = getPrototypeOf(prototype)) {
    if (setHas(slottedPrototypes, prototype)) return true;
  }
  return false;
}

/** Whether an internal-slot getter accepts `value`: a brand check that no program can fake. */
function has(readSlot, value) {
  try {
    readSlot(value);
    return true;
  } catch {
    return false;
  }
}

function boxedPrimitive(value) {
  const tag = sliceText(tagOf(value), 8, -1);
  if (tag === "Number" && has(numberOf, value)) return numberOf(value);
  if (tag === "String" && has(stringOf, value)) return stringOf(value);
  if (tag === "Boolean" && has(booleanOf, value)) return booleanOf(value);
  if (tag === "BigInt" && has(bigintToText, value)) return bigintToText(value);
  return undefined;
}
