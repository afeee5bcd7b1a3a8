/** The guests that images are made of, and each as one script. */
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { webBundling } from "../src/web/bundling.mjs";

export const IMAGES = {
  cell: {
    entryPoint: "../src/index.js",
    name: "nacre-guest.js",
    hostFunctions: ["completed", "failed", "output", "pause", "random", "request", "timers"],
    entries: ["defineFunctions", "deliver", "describeFailure", "fireTimer", "start", "untilNextTimer"],
  },
};

/** One script whose completion value is the entry point's `install`. */
export async function bundle(entryPoint) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(entryPoint, import.meta.url))],
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
