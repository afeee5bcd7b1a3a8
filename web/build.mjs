/** Builds the web app into the assets folder of the gateway: `node build.mjs`. */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

import { build } from "esbuild";

import { licenseTexts } from "../guest/image/licenses.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const ASSETS = here("../src/nacre/gateway/assets/");
const URL_OF_ASSETS = "/app/assets/";
const TYPES = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

const { metafile, outputFiles } = await build({
  absWorkingDir: here("."),
  entryPoints: { app: "src/main.tsx" },
  outdir: "assets",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  publicPath: URL_OF_ASSETS,
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".svg": "file" },
  minify: true,
  legalComments: "none",
  metafile: true,
  write: false,
});

const files = {};
async function writeAsset(name, content) {
  const gzip = gzipSync(content, { level: 9 });
  const brotli = brotliCompressSync(content, {
    params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length },
  });
  await writeFile(ASSETS + name, content);
  await writeFile(`${ASSETS}${name}.gz`, gzip);
  await writeFile(`${ASSETS}${name}.br`, brotli);
  files[name] = { type: TYPES[extname(name)], bytes: content.length, gzipBytes: gzip.length };
}

/** Return the files that the page loads before it shows anything: the entry and its static imports. */
function firstViewFiles() {
  const outputs = Object.entries(metafile.outputs);
  const [entry] = outputs.find(([, output]) => output.entryPoint === "src/main.tsx");
  const loaded = new Set();
  const pending = [entry];
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    if (loaded.has(path)) continue;
    loaded.add(path);
    const output = metafile.outputs[path];
    pending.push(...output.imports.filter((each) => each.kind === "import-statement").map((each) => each.path));
    if (output.cssBundle !== undefined) pending.push(output.cssBundle);
  }
  return [...loaded].map((path) => basename(path));
}

await rm(ASSETS, { recursive: true, force: true });
await mkdir(ASSETS, { recursive: true });
for (const { path, contents } of outputFiles) await writeAsset(basename(path), Buffer.from(contents));

const firstView = firstViewFiles();
const icon = Object.keys(files).find((name) => name.startsWith("icon-"));
const tags = [
  `<link rel="icon" type="image/svg+xml" href="${URL_OF_ASSETS}${icon}">`,
  ...firstView.filter((name) => name.endsWith(".css")).map((name) => `<link rel="stylesheet" href="${URL_OF_ASSETS}${name}">`),
  ...firstView
    .filter((name) => name.endsWith(".js"))
    .map((name, index) =>
      index === 0
        ? `<script type="module" src="${URL_OF_ASSETS}${name}"></script>`
        : `<link rel="modulepreload" href="${URL_OF_ASSETS}${name}">`,
    ),
];
const page = await readFile(here("src/index.html"), "utf8");
await writeAsset("index.html", Buffer.from(page.replace("<!-- assets -->", tags.join("\n    "))));
firstView.unshift("index.html");

await writeFile(`${ASSETS}THIRD_PARTY_LICENSES.txt`, await licenseTexts(new URL("./", import.meta.url)));
await writeFile(`${ASSETS}manifest.json`, `${JSON.stringify({ files, firstView }, null, 2)}\n`);

const kilobytes = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
for (const [name, { bytes, gzipBytes }] of Object.entries(files)) {
  console.log(`${name}: ${kilobytes(bytes)}, ${kilobytes(gzipBytes)} gzip`);
}
console.log(`first view: ${kilobytes(firstView.reduce((sum, name) => sum + files[name].gzipBytes, 0))} gzip`);
