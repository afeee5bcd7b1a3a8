// Evaluates transformed cells in QuickJS-WASI, a fresh VM each, and reads positions from its errors.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { QuickJS } from "quickjs-wasi";

const require = createRequire(import.meta.url);
const FILE = "cell.ts";

export const quickjsModule = await WebAssembly.compile(readFileSync(require.resolve("quickjs-wasi/quickjs.wasm")));

export async function newVm() {
  return QuickJS.create({ wasm: quickjsModule });
}

function positionIn(stack) {
  const match = /cell\.ts:(\d+)(?::(\d+))?/.exec(stack ?? "");
  return match ? { line: Number(match[1]), column: Number(match[2] ?? 0) } : {};
}

/** Runs one script whose value is an async function, and calls it; answers {value} or {error, line, column}. */
export async function runInQuickJs(script) {
  const vm = await newVm();
  try {
    let cell;
    try {
      cell = vm.evalCode(script, FILE);
    } catch (error) {
      return { error: `${error.name}: ${error.message}`, syntax: error.name === "SyntaxError", ...positionIn(error.stack) };
    }
    vm.setProp(vm.global, "__cell", cell);
    vm.evalCode(`__cell().then(
      (v) => { __out = JSON.stringify({ value: JSON.stringify(v) }); },
      (e) => { __out = JSON.stringify({ error: e?.name + ": " + e?.message, stack: e?.stack }); }
    ); var __out`);
    vm.executePendingJobs();
    const text = vm.dump(vm.evalCode("__out"));
    if (text === undefined) return { error: "the promise never settled" };
    const out = JSON.parse(text);
    return out.error === undefined ? out : { error: out.error, ...positionIn(out.stack) };
  } finally {
    vm.dispose();
  }
}
