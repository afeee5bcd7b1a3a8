/** Programs inside quickjs.wasm with the web APIs installed, and the same programs in Node. */
import assert from "node:assert/strict";
import { randomFillSync } from "node:crypto";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { QuickJS } from "quickjs-wasi";

import { webBundling } from "../../src/web/bundling.mjs";

const guestFolder = fileURLToPath(new URL("../..", import.meta.url));
const wasm = new WebAssembly.Module(await readFile(fileURLToPath(import.meta.resolve("quickjs-wasi/quickjs.wasm"))));

/** The web part as one minified script; it takes `hostRandomBytes` from the global scope and removes it there. */
export async function bundleWebPart() {
  const { outputFiles } = await build({
    absWorkingDir: guestFolder,
    stdin: {
      contents: `
        import { installWebApis } from "./src/web/index.js";
        const randomBytes = globalThis.hostRandomBytes;
        delete globalThis.hostRandomBytes;
        installWebApis(globalThis, { randomBytes });`,
      resolveDir: guestFolder,
    },
    bundle: true,
    format: "iife",
    mainFields: ["module", "main"],
    minify: true,
    platform: "neutral",
    plugins: [webBundling],
    write: false,
  });
  return outputFiles[0].text;
}

/** A bare VM, without the web part. */
export const createBareVm = () => QuickJS.create({ wasm });

// Every VM is restored from one image, as every cell is: what must not be frozen would show.
const image = await createImage();

async function createImage() {
  const vm = await createBareVm();
  const hostRandomBytes = vm.newFunction("hostRandomBytes", () => vm.undefined);
  vm.setProp(vm.global, "hostRandomBytes", hostRandomBytes);
  hostRandomBytes.dispose();
  vm.evalCode(await bundleWebPart(), "web.js").dispose();
  vm.runGC();
  const snapshot = vm.snapshot();
  vm.dispose();
  return snapshot;
}

/** A VM from the image; `randomSizes` lists what the guest asked the host's random source for. */
export async function startVm({ randomBytes = (size) => randomFillSync(new Uint8Array(size)) } = {}) {
  const vm = await QuickJS.restore(image, { wasm });
  const randomSizes = [];
  vm.registerHostCallback("hostRandomBytes", (size) => {
    randomSizes.push(size.toNumber());
    return vm.newUint8Array(randomBytes(size.toNumber()));
  });
  return {
    randomSizes,
    /** What `program(...inputs)` returns in the VM; both cross the border as JSON. */
    run(program, ...inputs) {
      // A hostile program may have replaced JSON and the iterators by the time it returns.
      const call = `((stringify) => stringify((${program})(${inputs.map(asSource).join(", ")})))(JSON.stringify)`;
      const json = vm.evalCode(call, "cell.js").consume((handle) => vm.dump(handle));
      vm.executePendingJobs();
      return json === undefined ? undefined : JSON.parse(json);
    },
  };
}

// Lone surrogates do not survive the way into the VM as raw text.
const asSource = (input) =>
  JSON.stringify(input).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * Assert that `program` gives for each input the same in the VM as in Node.
 *
 * A program is self-contained (it travels as source text) and returns JSON; of an error only the name is compared.
 */
export async function assertSameAsNode(program, inputs = [null]) {
  const outcomeIn = (program, input) => {
    try {
      return { value: program(input) };
    } catch (error) {
      return { error: error.name };
    }
  };
  const vm = await startVm();
  for (const input of inputs) {
    const expected = JSON.parse(JSON.stringify(outcomeIn(program, input)));
    const actual = vm.run(`(input) => (${outcomeIn})(${program}, input)`, input);
    assert.deepEqual(actual, expected, `for ${JSON.stringify(input)}`);
  }
}
