/**
 * The web platform's everyday globals, for cells that use them by habit.
 *
 * Knows libraries and one host capability, `randomBytes`; knows nothing of tools, output or timers.
 * DOMException, atob, btoa, queueMicrotask and performance come with QuickJS-NG. Bundle with ./bundling.mjs.
 */
import { TextEncoder } from "@exodus/bytes/encoding-lite.js";
import { URL, URLSearchParams } from "whatwg-url";

import { createCrypto } from "./crypto.js";
import { structuredClone } from "./structured-clone.js";
import { TextDecoder } from "./text-decoder.js";

/**
 * Define on `global` what it lacks, as hidden, writable and configurable properties.
 *
 * `randomBytes(n)` returns `n` bytes of host randomness in a Uint8Array; cells reach it through `crypto` only.
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
  // QuickJS's stack hook hands out the functions on the stack: with it, a cell could catch `randomBytes` itself.
  delete global.Error.prepareStackTrace;
  // core-js leaves its registry behind for other copies of itself; there is none here.
  delete global["__core-js_shared__"];
}
