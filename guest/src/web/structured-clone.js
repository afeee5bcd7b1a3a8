/** `structuredClone` of core-js, with the engine's Map, Set and DOMException. */
// Not the public entry of the package, which has its own Map and Set, so that clones would not be `instanceof Map`.
import "core-js-pure/modules/web.structured-clone.js";
import path from "core-js-pure/internals/path.js";

export const { structuredClone } = path;
