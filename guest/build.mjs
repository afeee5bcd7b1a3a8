/** Builds the images into the assets folder of the Python package: `node build.mjs`. */
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

import { buildImage, ENGINE_EXPORTS } from "./image/build_image.mjs";
import { bundleGuest, GUEST } from "./image/bundle.mjs";
import { licenseTexts } from "./image/licenses.mjs";
import { optimizeEngine } from "./image/optimize_engine.mjs";
import { typescriptModule } from "./image/typescript_module.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const ASSETS = here("../src/nacre/sandbox/assets/");

const require = createRequire(import.meta.url);
const engine = new Uint8Array(await readFile(require.resolve("quickjs-wasi/quickjs.wasm")));
const { version } = JSON.parse(await readFile(here("./node_modules/quickjs-wasi/package.json"), "utf8"));
const manifest = {
  engine: { package: "quickjs-wasi", version, sha256: createHash("sha256").update(engine).digest("hex") },
  images: {},
};

async function writeImage(kind, { wasm, facts }) {
  await writeFile(`${ASSETS}${kind}.wasm`, wasm);
  manifest.images[kind] = { file: `${kind}.wasm`, ...facts };
  console.log(`${kind}.wasm: ${wasm.length} bytes, heap ${facts.heapBytes} bytes`);
}

await mkdir(ASSETS, { recursive: true });
await writeImage("cell", buildImage({ engine: optimizeEngine(engine, ENGINE_EXPORTS), bundle: await bundleGuest(), ...GUEST }));
await writeImage("typescript", await typescriptModule());
await writeFile(`${ASSETS}THIRD_PARTY_LICENSES.txt`, await licenseTexts());
await writeFile(`${ASSETS}images.json`, `${JSON.stringify(manifest, null, 2)}\n`);
