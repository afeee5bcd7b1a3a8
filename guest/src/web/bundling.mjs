/** The esbuild plugin that every bundle containing src/web needs: it keeps whatwg-url small in the image. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const inWhatwgUrl = /[\\/]whatwg-url[\\/]/;

export const webBundling = {
  name: "nacre-web",
  setup(build) {
    const { mainFields = [], platform } = build.initialOptions;
    // Under "browser" or "node" the libraries pick files that expect a native TextDecoder or Buffer.
    if (platform !== "neutral" || !mainFields.includes("main")) {
      throw new Error('src/web bundles with platform: "neutral" and mainFields: ["module", "main"]');
    }

    // IDNA: 9,262 table rows as live arrays would be more heap than all the rest of src/web.
    build.onResolve({ filter: /^tr46$/ }, ({ importer }) =>
      inWhatwgUrl.test(importer) ? { path: here("./idna.js") } : undefined,
    );
    build.onLoad({ filter: /[\\/]tr46[\\/]lib[\\/]mappingTable\.json$/ }, async ({ path }) => ({
      contents: `module.exports = JSON.parse(${JSON.stringify(asciiJson(await readFile(path, "utf8")))});`,
      loader: "js",
    }));

    // Legacy multi-byte encodings (Big5, Shift_JIS, ...): only for pages that are not UTF-8.
    build.onResolve({ filter: /^@exodus\/bytes\/encoding\.js$/ }, ({ importer, resolveDir, kind }) =>
      inWhatwgUrl.test(importer)
        ? build.resolve("@exodus/bytes/encoding-lite.js", { importer, resolveDir, kind })
        : undefined,
    );

    // whatwg-url takes TextEncoder from the global scope while it loads, where there is none yet.
    build.onResolve({ filter: /^\.\/encoding$/ }, ({ importer }) =>
      inWhatwgUrl.test(importer) ? { path: here("./utf8.js") } : undefined,
    );
  },
};

/** The same JSON with escapes only: QuickJS stores a string in one byte per character while it is Latin-1. */
function asciiJson(json) {
  return JSON.stringify(JSON.parse(json)).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
