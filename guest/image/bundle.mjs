/** Bundles the guest code to one script, and defines the settings of its image. */
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { webBundling } from "../src/web/bundling.mjs";

export const GUEST = {
  name: "nacre-guest.js",
  hostFunctions: ["completed", "failed", "output", "pause", "random", "request", "shared", "timers"],
  entries: ["defineCatalog", "defineFunctions", "deliver", "describeFailure", "fireTimer", "moduleError", "start", "untilNextTimer"],
};

/** Return a script whose completion value is the guest's `install`. */
export async function bundleGuest() {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL("../src/index.js", import.meta.url))],
    bundle: true,
    write: false,
    minify: true,
    format: "iife",
    globalName: "guest",
    target: "es2023",
    platform: "neutral",
    mainFields: ["module", "main"],
    plugins: [webBundling],
    legalComments: "none",
  });
  return `(() => { "use strict"; ${outputFiles[0].text}\nreturn guest.install; })()`;
}
