/** Runs the program in argv[2] in quickjs.wasm once for each line on stdin; prints its wall and CPU milliseconds. */
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { QuickJS } from "../guest/node_modules/quickjs-wasi/dist/index.js";

const wasm = await readFile(new URL("../guest/node_modules/quickjs-wasi/quickjs.wasm", import.meta.url));
// Cells are interruptible, so this is too: the engine then looks up at every turn of a loop.
const vm = await QuickJS.create({ wasm, interruptHandler: () => false });
const program = `(async () => {\n${process.argv[2]}\n})().then((value) => { globalThis.result = value; })`;

for await (const _line of createInterface({ input: process.stdin })) {
  const cpu = process.cpuUsage();
  const started = performance.now();
  vm.evalCode(program).dispose();
  vm.executePendingJobs();
  const wallMs = performance.now() - started;
  const { user, system } = process.cpuUsage(cpu);
  const value = vm.evalCode("result").consume((handle) => handle.toNumber());
  console.log(JSON.stringify({ value, wallMs, cpuMs: (user + system) / 1000 }));
}
