/** UTF-8 for whatwg-url, in place of its lib/encoding.js (see bundling.mjs). */
export { utf8fromStringLoose as utf8Encode, utf8toStringLoose as utf8DecodeWithoutBOM } from "@exodus/bytes/utf8.js";
