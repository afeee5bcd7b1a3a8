/**
 * Copies of the intrinsics that the guest code uses.
 *
 * They are copied while the image is built, before any program runs, so a program that overwrites `JSON`, `Promise` or
 * `Array.prototype` does not affect the guest code. Guest code uses no array iteration, no spread, no `push` and no
 * `${}` in templates (QuickJS calls `String.prototype.concat` for it). Its tables are objects without a prototype. So no
 * code that a program puts on a prototype runs inside the guest code.
 */
const { apply } = Reflect;
const uncurryThis = Function.prototype.bind.bind(Function.prototype.call);

export const reflectApply = apply;
export const { defineProperty: tryDefineProperty, getPrototypeOf } = Reflect;
export const {
  Array: { isArray },
  ArrayBuffer: { isView },
  Error: { captureStackTrace, isError },
  JSON: { parse: parseJson, stringify: quoteJson },
  Object: { defineProperty, freeze, hasOwn, keys: enumerableKeys, preventExtensions },
} = globalThis;
export const { Error, Number, Promise, Proxy, RangeError, String, TypeError } = globalThis;

export const { prototype: objectPrototype } = Object;
export const { toStringTag } = Symbol;

const { round } = Math;
const now = performance.now.bind(performance);
/** Return whole milliseconds. Unlike the clock of `Date`, this one never goes back. */
export const monotonicTimeMs = () => round(now());

const typedArrayPrototype = getPrototypeOf(Uint8Array.prototype);
const getter = (prototype, name) => uncurryThis(Object.getOwnPropertyDescriptor(prototype, name).get);
export const typedArrayName = getter(typedArrayPrototype, Symbol.toStringTag);
export const typedArrayLength = getter(typedArrayPrototype, "length");
export const arrayBufferBytes = getter(ArrayBuffer.prototype, "byteLength");
export const dataViewBytes = getter(DataView.prototype, "byteLength");
export const mapSize = getter(Map.prototype, "size");
export const setSize = getter(Set.prototype, "size");
export const mapForEach = uncurryThis(Map.prototype.forEach);
export const setHas = uncurryThis(Set.prototype.has);
export const setForEach = uncurryThis(Set.prototype.forEach);
export const dateToIso = uncurryThis(Date.prototype.toISOString);
export const dateValue = uncurryThis(Date.prototype.getTime);
export const bigintToText = uncurryThis(BigInt.prototype.toString);
export const symbolToText = uncurryThis(Symbol.prototype.toString);
export const numberOf = uncurryThis(Number.prototype.valueOf);
export const stringOf = uncurryThis(String.prototype.valueOf);
export const booleanOf = uncurryThis(Boolean.prototype.valueOf);
export const tagOf = uncurryThis(Object.prototype.toString);
export const toWellFormed = uncurryThis(String.prototype.toWellFormed);
export const indexOfText = uncurryThis(String.prototype.indexOf);
export const sliceText = uncurryThis(String.prototype.slice);
export const lowerCase = uncurryThis(String.prototype.toLowerCase);
export const regExpToText = uncurryThis(RegExp.prototype.toString);
export const weakMapGet = uncurryThis(WeakMap.prototype.get);
export const weakMapHas = uncurryThis(WeakMap.prototype.has);
export const weakMapSet = uncurryThis(WeakMap.prototype.set);
export const weakSetAdd = uncurryThis(WeakSet.prototype.add);
export const weakSetHas = uncurryThis(WeakSet.prototype.has);

/** Set the function that makes the stack of each new error; undefined for the engine's own. Programs cannot reach it. */
export const setStackHook = uncurryThis(Object.getOwnPropertyDescriptor(Error, "prepareStackTrace").set);

/** The prototype of errors that only the engine creates. It keeps no way to its constructor. */
export const internalErrorPrototype = InternalError.prototype;
delete internalErrorPrototype.constructor;
delete globalThis.InternalError;

/** The names of the members of `Object.prototype` and of classes, as a table. */
export const objectMemberNames = { __proto__: null, prototype: true };
for (const name of Object.getOwnPropertyNames(Object.prototype)) objectMemberNames[name] = true;

/** Prototypes of objects with internal slots that the mapping to JSON reads. */
export const slottedPrototypes = new Set([
  typedArrayPrototype,
  ArrayBuffer.prototype,
  BigInt.prototype,
  Boolean.prototype,
  DataView.prototype,
  Date.prototype,
  Map.prototype,
  Number.prototype,
  Promise.prototype,
  RegExp.prototype,
  Set.prototype,
  String.prototype,
  WeakMap.prototype,
  WeakSet.prototype,
]);
