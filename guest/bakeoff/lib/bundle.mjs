// Bundles a transform into one script that sets globalThis.transformCell, for QuickJS and for Node alike.
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));

/** `entry` is the path of a module in this folder that exports `transformCell`. */
export async function bundle(entry, options = {}) {
  const result = await build({
    stdin: { contents: `import { transformCell } from ${JSON.stringify(entry)}; globalThis.transformCell = transformCell;`, resolveDir: FOLDER },
    bundle: true,
    write: false,
    format: "iife",
    target: "es2022",
    platform: "neutral",
    mainFields: ["module", "main"],
    legalComments: "none",
    logLevel: "error",
    ...options,
  });
  return result.outputFiles[0].text;
}

export async function loadInNode(entry) {
  const scope = {};
  new Function("globalThis", await bundle(entry))(scope);
  return scope.transformCell;
}
