/**
 * Common globals of the web platform.
 *
 * They need one host function, `randomBytes`. DOMException, atob, btoa, queueMicrotask and performance are part of
 * QuickJS-NG. Bundle with ./bundling.mjs.
 */
import { TextEncoder } from "@exodus/bytes/encoding-lite.js";
import { URL, URLSearchParams } from "whatwg-url";

import { createCrypto } from "./crypto.js";
import { structuredClone } from "./structured-clone.js";
import { TextDecoder } from "./text-decoder.js";

/**
 * Define the missing globals, as writable and configurable properties that are not enumerable.
 *
 * `randomBytes(n)` returns `n` random bytes of the host in a Uint8Array. A cell can use it only through `crypto`.
 */
export function installWebApis(global, { randomBytes }) {
  const apis = {
    TextDecoder,
    TextEncoder,
    URL,
    URLSearchParams,
    crypto: createCrypto(randomBytes),
    structuredClone,
  };
  for (const [name, value] of Object.entries(apis)) {
    if (name in global) continue;
    // A minifier may have renamed the classes; programs see `value.constructor.name`.
    if (typeof value === "function") Object.defineProperty(value, "name", { value: name, configurable: true });
    Object.defineProperty(global, name, { value, enumerable: false, writable: true, configurable: true });
  }
  // The stack hook of QuickJS exposes the functions on the stack, and so `randomBytes` itself.
  delete global.Error.prepareStackTrace;
  // core-js leaves its registry for other copies of itself.
  delete global["__core-js_shared__"];
}
