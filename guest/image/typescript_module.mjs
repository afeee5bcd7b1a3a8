/** Extracts the TypeScript transform of swc, a WebAssembly module that its npm package has as base64 in a script. */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const WASM_TEXT = /Buffer\.from\('([A-Za-z0-9+/=]+)', 'base64'\)/g;

/** Return the module and its metadata in the format of an image. Most fields are zero, as it has no guest code. */
export async function typescriptModule() {
  const script = createRequire(import.meta.url).resolve("@swc/wasm-typescript");
  const found = [...(await readFile(script, "utf8")).matchAll(WASM_TEXT)];
  if (found.length !== 1) throw new Error(`expected one WebAssembly module in ${script}, found ${found.length}`);
  const wasm = Buffer.from(found[0][1], "base64");
  return {
    wasm,
    facts: {
      sha256: createHash("sha256").update(wasm).digest("hex"),
      entries: {},
      heapBytes: 0,
      memoryBytes: initialMemoryBytes(new WebAssembly.Module(wasm)),
      randomState: 0,
      scratch: 0,
      scratchBytes: 0,
      stackPointer: 0,
      undefined: 0,
    },
  };
}

function initialMemoryBytes(module) {
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = () => {
      throw new Error(`${name} was called while the assets were built`);
    };
  }
  return new WebAssembly.Instance(module, imports).exports.memory.buffer.byteLength;
}
