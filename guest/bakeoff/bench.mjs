// Times transforms inside QuickJS-WASI on the corpus: `node bench.mjs [--only name] [--rounds n]`.
import { bundle } from "./lib/bundle.mjs";
import { corpus } from "./lib/corpus.mjs";
import { newVm } from "./lib/quickjs.mjs";

const argument = (name) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : undefined);
const only = argument("--only");
const rounds = Number(argument("--rounds") ?? 5);

const SHIM = "globalThis.process ??= { env: {}, argv: [], platform: 'linux', nextTick() {}, cwd: () => '/', browser: true }; globalThis.setTimeout ??= () => 0; globalThis.console ??= { log() {}, warn() {}, error() {} };";
const NODE_BUILTINS = ["fs", "path", "os", "inspector", "crypto", "url", "perf_hooks", "source-map-support"];
const subjects = [
  { name: "sucrase", entry: "./entry-sucrase.mjs" },
  { name: "sucrase, guarded", entry: "./sucrase-cell.mjs" },
  { name: "sucrase, guarded, minified", entry: "./sucrase-cell.mjs", options: { minify: true } },
  { name: "ts-blank-space", entry: "./entry-blank-space.mjs", slow: true },
  { name: "typescript", entry: "./entry-typescript.mjs", slow: true },
  { name: "babel", entry: "./entry-babel.mjs", slow: true },
];

const quantile = (xs, q) => [...xs].sort((a, b) => a - b)[Math.min(xs.length - 1, Math.floor(q * xs.length))];
const ms = (n) => Number(n.toFixed(2));
const mega = (bytes) => Number((bytes / 1e6).toFixed(1));

async function measure({ entry, options, slow }) {
  const code = await bundle(entry, { external: NODE_BUILTINS, define: { "process.env.NODE_ENV": '"production"' }, ...options });
  const vm = await newVm();
  vm.evalCode(SHIM + "globalThis.require = () => ({});");
  let t = performance.now();
  vm.evalCode(code, "transform.js");
  const load = performance.now() - t;
  const memory = vm.computeMemoryUsage?.() ?? vm.getMemoryUsage?.();
  const image = vm.snapshot().memory?.byteLength;
  const transform = vm.evalCode("(s) => { try { return globalThis.transformCell(s).code.length } catch (e) { return -1 } }");
  const perCell = [];
  const cells = slow ? corpus.cells.filter((_, i) => i % 4 === 0 || corpus.cells[i].lines >= 21) : corpus.cells;
  for (const cell of cells) {
    const source = vm.newString(cell.source);
    const times = [];
    for (let round = 0; round < (slow ? 2 : rounds) + 1; round++) {
      t = performance.now();
      vm.callFunction(transform, vm.undefined, source).dispose();
      times.push(performance.now() - t);
    }
    perCell.push({ ms: quantile(times.slice(1), 0.5), first: times[0], lines: cell.lines - 1 });
    source.dispose();
  }
  const all = perCell.map((c) => c.ms);
  const long = perCell.filter((c) => c.lines >= 20).map((c) => c.ms);
  vm.dispose();
  return {
    "bundle kB": Math.round(code.length / 1000), "load ms": Math.round(load), "memory MB": mega(memory?.memoryUsedSize ?? memory?.mallocSize ?? 0), "image MB": image ? mega(image) : undefined,
    "median ms": ms(quantile(all, 0.5)), "p95 ms": ms(quantile(all, 0.95)), "20-60 lines: median": ms(quantile(long, 0.5)), "p95": ms(quantile(long, 0.95)), max: ms(Math.max(...all)),
    "ms/line": ms(perCell.reduce((a, c) => a + c.ms, 0) / perCell.reduce((a, c) => a + c.lines, 0)),
  };
}

const rows = [];
for (const subject of subjects) {
  if (only && !subject.name.includes(only)) continue;
  try {
    rows.push({ transform: subject.name, ...(await measure(subject)) });
  } catch (e) {
    console.error(`${subject.name}: not measured (${String(e.message).split("\n")[0]} ${e.stack?.split("\n")[0] ?? ""})`);
  }
}
console.table(rows);
process.exit(0);
