/** Optimizes the module of the engine: its loop calls small functions, which wasmtime does not inline. */
import binaryen from "binaryen";

// Sizes of functions, in nodes of Binaryen. With more, the engine is larger and not faster.
const MAX_INLINED_ALWAYS = 40;
const MAX_INLINED_WITHOUT_CALLS = 300;
const MAX_INLINED_WITH_ONE_CALLER = 100;

export function optimizeEngine(wasm) {
  const module = binaryen.readBinary(wasm);
  binaryen.setOptimizeLevel(2);
  binaryen.setShrinkLevel(0);
  binaryen.setAlwaysInlineMaxSize(MAX_INLINED_ALWAYS);
  binaryen.setFlexibleInlineMaxSize(MAX_INLINED_WITHOUT_CALLS);
  binaryen.setOneCallerInlineMaxSize(MAX_INLINED_WITH_ONE_CALLER);
  module.optimize();
  return module.emitBinary();
}
