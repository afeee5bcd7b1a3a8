/** `structuredClone` by core-js, over the engine's own Map, Set and DOMException. */
// Not the package's public entry: that one brings its own Map and Set, and clones would not be `instanceof Map`.
import "core-js-pure/modules/web.structured-clone.js";
import path from "core-js-pure/internals/path.js";

export const { structuredClone } = path;
