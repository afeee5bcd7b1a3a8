/** The esbuild plugin for bundles with src/web. It reduces the size of whatwg-url in the image. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const inWhatwgUrl = /[\\/]whatwg-url[\\/]/;

export const webBundling = {
  name: "nacre-web",
  setup(build) {
    const { mainFields = [], platform } = build.initialOptions;
    // With "browser" or "node", the libraries use files that need a native TextDecoder or Buffer.
    if (platform !== "neutral" || !mainFields.includes("main")) {
      throw new Error('src/web bundles with platform: "neutral" and mainFields: ["module", "main"]');
    }

    // IDNA: 9,262 table rows as arrays would need more heap than the rest of src/web.
    build.onResolve({ filter: /^tr46$/ }, ({ importer }) =>
      inWhatwgUrl.test(importer) ? { path: here("./idna.js") } : undefined,
    );
    build.onLoad({ filter: /[\\/]tr46[\\/]lib[\\/]mappingTable\.json$/ }, async ({ path }) => ({
      contents: `module.exports = JSON.parse(${JSON.stringify(asciiJson(await readFile(path, "utf8")))});`,
      loader: "js",
    }));

    // Omit legacy multi-byte encodings (Big5, Shift_JIS, ...), which only pages without UTF-8 need.
    build.onResolve({ filter: /^@exodus\/bytes\/encoding\.js$/ }, ({ importer, resolveDir, kind }) =>
      inWhatwgUrl.test(importer)
        ? build.resolve("@exodus/bytes/encoding-lite.js", { importer, resolveDir, kind })
        : undefined,
    );

    // whatwg-url reads the global TextEncoder when it is loaded, before it is defined.
    build.onResolve({ filter: /^\.\/encoding$/ }, ({ importer }) =>
      inWhatwgUrl.test(importer) ? { path: here("./utf8.js") } : undefined,
    );
  },
};

/** Escape all characters beyond ASCII: QuickJS stores a Latin-1 string in one byte per character. */
function asciiJson(json) {
  return JSON.stringify(JSON.parse(json)).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
