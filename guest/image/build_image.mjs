/** Builds an image: the module of the engine with the guest code loaded in its memory, and its metadata. */
import { createHash } from "node:crypto";

import { BUILD_EXPORTS, BuildInstance } from "./instance.mjs";
import { ADDED_EXPORTS } from "./optimize_engine.mjs";
import { withInitialMemory } from "./wasm_rewrite.mjs";

/** The exports of the engine that the host uses. All others are omitted. */
const HOST_EXPORTS = [
  "JS_Eval2",
  "memory",
  "qjs_call",
  "qjs_compute_memory_usage",
  "qjs_execute_pending_job",
  "qjs_free_cstring",
  "qjs_free_value",
  "qjs_get_bool",
  "qjs_get_context_ptr",
  "qjs_get_exception",
  "qjs_get_float64",
  "qjs_get_string_len",
  "qjs_get_undefined",
  "qjs_get_value_ptr",
  // Only for the tests in Node.
  "qjs_is_exception",
  "qjs_new_error",
  "qjs_new_string",
  "qjs_new_uint8_array",
  "qjs_set_memory_limit",
  "qjs_set_prop_string",
  "qjs_throw",
  "wasm_free",
  "wasm_malloc",
];

/** The exports that an engine must have. */
export const ENGINE_EXPORTS = [...HOST_EXPORTS, ...BUILD_EXPORTS];

const SCRATCH_BYTES = 4096;

/**
 * Evaluate `bundle`, whose value is a function `(globalThis, host)` that returns the entry points, and save the memory.
 */
export function buildImage({ engine, bundle, name, hostFunctions, entries }) {
  const module = new WebAssembly.Module(engine);
  // Compiled in another instance, so that the image does not contain garbage of the parser.
  const bytecode = new BuildInstance(module).compile(bundle, name);
  const instance = new BuildInstance(module);
  const install = instance.run(bytecode);
  const globalThisHandle = instance.exports.qjs_get_global();
  const result = instance.call(install, [globalThisHandle, instance.hostObject(hostFunctions)]);
  const handles = Object.fromEntries(entries.map((entry) => [entry, instance.property(result, entry)]));
  const randomState = findRandomState(instance);
  // For arguments, lengths and short texts of calls between host and engine, which then need no allocation.
  const scratch = instance.exports.wasm_malloc(SCRATCH_BYTES);
  const undefinedHandle = instance.exports.qjs_get_undefined();
  instance.finish();
  const memory = instance.memory();
  // The published engine, which only tests use, has none of the added ones.
  const exports = [...HOST_EXPORTS, ...ADDED_EXPORTS.filter((name) => name in instance.exports)];
  const wasm = withInitialMemory(engine, memory, instance.exports.__stack_pointer.value, exports);
  return {
    wasm,
    facts: {
      sha256: createHash("sha256").update(wasm).digest("hex"),
      entries: handles,
      heapBytes: instance.heapBytes(),
      memoryBytes: memory.length,
      randomState,
      scratch,
      scratchBytes: SCRATCH_BYTES,
      undefined: undefinedHandle,
      stackPointer: instance.exports.__stack_pointer.value,
    },
  };
}

/**
 * Find the address of the state of `Math.random`, an xorshift64* generator in the context. All cells start with the
 * same memory, so the host writes a new seed there.
 */
function findRandomState(instance) {
  const drawRandom = instance.compile("Math.random()", "random.js");
  // Called once before, so that the calls below do not allocate memory.
  instance.run(drawRandom);
  const before = new DataView(instance.memory().buffer);
  instance.run(drawRandom);
  const after = new DataView(instance.memory().buffer);
  const found = [];
  for (let at = 0; at + 8 <= before.byteLength; at += 8) {
    const state = before.getBigUint64(at, true);
    if (state !== 0n && after.getBigUint64(at, true) === xorshift(state)) found.push(at);
  }
  if (found.length !== 1) throw new Error(`expected one random state in the engine's memory, found ${found.length}`);
  return found[0];
}

function xorshift(state) {
  let x = state;
  x ^= x >> 12n;
  x ^= BigInt.asUintN(64, x << 25n);
  x ^= x >> 27n;
  return x;
}
