/** `crypto.getRandomValues` and `crypto.randomUUID` over the host's random source. */

const MAX_RANDOM_BYTES = 65_536;

// Copied while the image is built, so that a program cannot change them for the guest code.
const { ArrayBuffer, DOMException, Object, TypeError, Uint8Array } = globalThis;
const { isView } = ArrayBuffer;
const uncurryThis = Function.prototype.bind.bind(Function.prototype.call);
const typedArrayPrototype = Object.getPrototypeOf(Uint8Array.prototype);
const getterOf = (name) => uncurryThis(Object.getOwnPropertyDescriptor(typedArrayPrototype, name).get);
const typeNameOf = getterOf(Symbol.toStringTag);
const bufferOf = getterOf("buffer");
const byteOffsetOf = getterOf("byteOffset");
const byteLengthOf = getterOf("byteLength");
const setBytes = uncurryThis(typedArrayPrototype.set);

// Without a prototype, so that a lookup does not find members that a program puts on Object.prototype.
const integerTypes = Object.assign(Object.create(null), {
  BigInt64Array: true,
  BigUint64Array: true,
  Int16Array: true,
  Int32Array: true,
  Int8Array: true,
  Uint16Array: true,
  Uint32Array: true,
  Uint8Array: true,
  Uint8ClampedArray: true,
});
const hexOfByte = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** Create the `crypto` object. `randomBytes` stays in this closure, and no call requests more than the quota. */
export function createCrypto(randomBytes) {
  const Crypto = class {
    constructor() {
      throw new TypeError("Illegal constructor");
    }

    getRandomValues(array) {
      assertReceiver(this);
      const byteLength = byteLengthForRandomness(array);
      if (byteLength > 0) {
        setBytes(new Uint8Array(bufferOf(array), byteOffsetOf(array), byteLength), randomBytes(byteLength));
      }
      return array;
    }

    randomUUID() {
      assertReceiver(this);
      return uuidFromBytes(randomBytes(16));
    }
  };
  Object.defineProperty(Crypto, "name", { value: "Crypto", configurable: true });
  Object.defineProperty(Crypto.prototype, Symbol.toStringTag, { value: "Crypto", configurable: true });
  const crypto = Object.create(Crypto.prototype);

  function assertReceiver(receiver) {
    if (receiver !== crypto) throw new TypeError("Illegal invocation");
  }
  return crypto;
}

/** Return how many bytes to fill, or throw the error that the Web Crypto standard requires. */
function byteLengthForRandomness(array) {
  if (!isView(array)) throw new TypeError("getRandomValues expects an integer typed array");
  const typeName = typeNameOf(array);
  if (typeName === undefined || !integerTypes[typeName]) {
    throw new DOMException(
      `getRandomValues fills integer typed arrays, not ${typeName ?? "DataView"}`,
      "TypeMismatchError",
    );
  }
  const byteLength = byteLengthOf(array);
  if (byteLength > MAX_RANDOM_BYTES) {
    throw new DOMException(
      `getRandomValues gives at most ${MAX_RANDOM_BYTES} bytes per call, not ${byteLength}`,
      "QuotaExceededError",
    );
  }
  return byteLength;
}

/** A version 4 UUID in the text form of RFC 9562. */
function uuidFromBytes(bytes) {
  let uuid = "";
  for (let i = 0; i < 16; i++) {
    let byte = bytes[i];
    if (i === 6) byte = (byte & 0x0f) | 0x40;
    if (i === 8) byte = (byte & 0x3f) | 0x80;
    if (i === 4 || i === 6 || i === 8 || i === 10) uuid += "-";
    uuid += hexOfByte[byte];
  }
  return uuid;
}
