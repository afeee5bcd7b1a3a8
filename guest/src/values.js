/**
 * Converts JavaScript values to JSON text. docs/cells.md has the mapping as a table.
 *
 * Values come from untrusted programs: getters, proxies and `toJSON` may throw or never return. Errors propagate to the
 * caller, and the time limit of the host stops endless code.
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
  objectPrototype,
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
  toStringTag,
  toWellFormed,
  typedArrayLength,
  typedArrayName,
  weakMapGet,
  weakMapHas,
  weakMapSet,
  weakSetHas,
} from "./intrinsics.js";

// The host rejects JSON with more than 256 levels. The rest is for the results and messages that contain the value.
const MAX_DEPTH = 240;

const markers = new WeakMap();

// JSON of names of members, methods and tools: a program uses the same few again and again, and QuickJS takes as long for
// the JSON of a text as for ten other steps.
const quotedNames = { __proto__: null };
const MAX_QUOTED_NAMES = 256;
const MAX_QUOTED_LENGTH = 64;
let quotedCount = 0;

/** Return the JSON text of a text that probably occurs again. */
export function quoteName(name) {
  const known = quotedNames[name];
  if (known !== undefined) return known;
  const quoted = quoteJson(toWellFormed(name));
  if (quotedCount < MAX_QUOTED_NAMES && name.length <= MAX_QUOTED_LENGTH) {
    quotedNames[name] = quoted;
    quotedCount++;
  }
  return quoted;
}

/** Show a short text in place of the content of an object. For objects of the guest code. */
export function showAs(object, text) {
  weakMapSet(markers, object, text);
}

// Takes the images of the value that is being encoded; null if they stay in it.
let takeImage = null;

/**
 * Return the JSON text of `value`. A value that JSON lacks is replaced as documented. If there is a function
 * `take(mimeType, data)`, it gets each image part of an MCP result, and a marker stays in its place. `depth` is how
 * deep the text will be inside of other JSON.
 */
export function toJson(value, take = null, depth = 0) {
  // A method of the value may call this function again.
  const before = takeImage;
  takeImage = take;
  try {
    return encode(value, null, depth) ?? "null";
  } finally {
    takeImage = before;
  }
}

/** Return a readable text: a string as it is, any other value with the same mapping. */
export function toText(value, take = null) {
  if (typeof value === "string") return toWellFormed(value);
  if (value === undefined) return "undefined";
  if (typeof value === "number") return String(value);
  if (isErrorValue(value)) return errorText(value);
  const json = toJson(value, take);
  // A marker such as [Function f], a date or a URL is already text, without quotes.
  return json[0] === '"' ? parseJson(json) : json;
}

/** Return a readable text, or a note if the value throws an error. */
export function toTextOrNote(value, take = null) {
  try {
    return toText(value, take);
  } catch {
    return "a value that cannot be shown";
  }
}

/** Return `Name: message`, also if the program has changed the error. */
export function errorText(error) {
  const name = textProperty(error, "name");
  const message = textProperty(error, "message");
  if (!name) return message;
  return message ? name + ": " + message : name;
}

/** Whether the value is an error. In QuickJS, `Error.isError` is false for a DOMException. */
export function isErrorValue(value) {
  if (isError(value)) return true;
  try {
    return typeof value === "object" && value !== null && value[toStringTag] === "DOMException";
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

/** Return JSON text, or undefined where JSON.stringify would omit a property. */
function encode(value, ancestors, depth) {
  switch (typeof value) {
    case "string":
      return quoteJson(toWellFormed(value));
    case "number":
      // Not for infinite numbers and NaN.
      return value - value === 0 ? "" + value : "null";
    case "boolean":
      return value ? "true" : "false";
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

/** Create the error for a value beyond MAX_DEPTH. Its stack starts at the caller, not inside this recursion. */
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
  if (takeImage !== null && object.type === "image") {
    const { mimeType, data } = object;
    if (typeof mimeType === "string" && typeof data === "string") return imageMarker(mimeType, data);
  }
  const names = enumerableKeys(object);
  if (names.length === 0) return emptyObject(object);
  let json = "";
  for (let index = 0; index < names.length; index++) {
    const item = encode(object[names[index]], path, depth + 1);
    if (item !== undefined) json += (json ? "," : "") + quoteName(names[index]) + ":" + item;
  }
  return "{" + json + "}";
}

function imageMarker(mimeType, data) {
  takeImage(toWellFormed(mimeType), data);
  let size = data.length;
  while (size > 0 && data[size - 1] === "=") size--;
  const bytes = (size * 3 - ((size * 3) % 4)) / 4;
  return '{"type":"image","mimeType":' + quoteJson(toWellFormed(mimeType)) + ',"bytes":' + bytes + "}";
}

/** Encode an object without properties: iterators and other opaque objects by their tag. */
function emptyObject(object) {
  const tag = sliceText(tagOf(object), 8, -1);
  if (tag === "Object") return "{}";
  if (tag === "URLSearchParams") return quoteJson(toWellFormed(String(object)));
  return quoteJson("[" + toWellFormed(tag) + "]");
}

/** Encode a map as an object if all keys are strings, otherwise as a list of pairs. */
function encodeMap(map, path, depth) {
  // Encoded after `forEach`, because its frames at every level would exhaust the stack before MAX_DEPTH.
  const keys = { __proto__: null };
  const items = { __proto__: null };
  let count = 0;
  let allText = true;
  mapForEach(map, (item, key) => {
    allText &&= typeof key === "string";
    keys[count] = key;
    items[count++] = item;
  });
  // A pair is a level of its own.
  const inner = allText ? depth + 1 : depth + 2;
  if (inner > MAX_DEPTH) throw nestedTooDeep();
  let json = "";
  for (let index = 0; index < count; index++) {
    const key = encode(keys[index], path, inner) ?? "null";
    const value = encode(items[index], path, inner) ?? "null";
    json += (json ? "," : "") + (allText ? key + ":" + value : "[" + key + "," + value + "]");
  }
  return allText ? "{" + json + "}" : "[" + json + "]";
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

/** Return the text for a value that JSON lacks, null for an invalid date, undefined for all other values. */
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
    // The view of a detached buffer has no length.
    return "[DataView(" + (has(dataViewBytes, value) ? dataViewBytes(value) : 0) + ")]";
  }
  if (has(arrayBufferBytes, value)) return "[ArrayBuffer(" + arrayBufferBytes(value) + ")]";
  if (has(dateValue, value)) return dateValue(value) === dateValue(value) ? dateToIso(value) : null;
  const tag = sliceText(tagOf(value), 8, -1);
  if (tag === "RegExp") return has(regExpToText, value) ? toWellFormed(regExpToText(value)) : undefined;
  // By its tag only, because a method of the promise would mark it as handled.
  if (tag === "Promise") return "[Promise]";
  if (has(weakMapProbe, value)) return "[WeakMap]";
  if (has(weakSetProbe, value)) return "[WeakSet]";
  return undefined;
}

const probeKey = {};
const weakMapProbe = (value) => weakMapHas(value, probeKey);
const weakSetProbe = (value) => weakSetHas(value, probeKey);

/** Whether `value` can have internal slots. Checking for a missing slot is slow, as it throws an error. */
function mayHaveSlots(value) {
  for (let prototype = getPrototypeOf(value); prototype !== null; prototype = getPrototypeOf(prototype)) {
    if (prototype === objectPrototype) return false;
    if (setHas(slottedPrototypes, prototype)) return true;
  }
  return false;
}

/** Whether `value` has an internal slot. A program cannot forge it. */
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
