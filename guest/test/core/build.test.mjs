/** The image: the same inputs give the same bytes, and every VM of it starts alike. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { specializeEngine } from "../../image/optimize_engine.mjs";
import { buildCellImage, Cell, engine, startCell, valueOf } from "./cell.mjs";

const ALL_KINDS_OF_VALUES = `
  const seen = [];
  const rope = (text, count) => (count === 0 ? text : rope(text + count, count - 1));
  const values = [1, 1.5, -0, 2n ** 70n, "text", rope("rope", 50), Symbol("s"), null, undefined, true, [1], { a: 1 }, () => 1];
  for (let round = 0; round < 3; round++) {
    for (let value of values) {
      let other = [value, value];
      other = other[round % 2];
      seen.push(typeof other, String(value));
      value = other = undefined;
    }
  }
  function* numbers() { try { yield 1; yield* [2, 3]; } finally { seen.push("end"); } }
  for (const number of numbers()) if (number === 2) break; else seen.push(number);
  class Base { #own = 1; get own() { return this.#own; } static { seen.push("static"); } }
  class Derived extends Base { set own(value) { super.own; } has(key) { return key in this; } }
  const { own, ...rest } = { own: new Derived().own, more: [...new Map([[1, 2]])] };
  label: for (const key in rest) { switch (key) { case "more": seen.push(\`\${key}\`); continue label; default: throw key; } }
  try { null.x; } catch ({ name }) { seen.push(name); } finally { seen.push(delete rest.more); }
  for (let i = 0, sum = 0; i < 30_000; i++) { sum += i; sum -= 0.5; if (i === 29_999) seen.push(sum | 0, sum ** 2 >>> 3); }
  for await (const value of [Promise.resolve(1), 2]) seen.push(value ?? 3);
  const freed = [{ kept: false }, { kept: true }];
  const [kept, weak] = [freed[1], freed.map((value) => new WeakRef(value))];
  freed.length = 0;
  await null;
  seen.push(weak.map((reference) => reference.deref() === undefined), kept);
  return seen;
`;

test("the engine for wasmtime does the same in the same number of steps", async () => {
  const special = await buildCellImage({ engine: specializeEngine(engine).emitBinary() });
  const [cell, published] = [startCell(ALL_KINDS_OF_VALUES, { image: special }), startCell(ALL_KINDS_OF_VALUES)];
  assert.deepEqual(cell.value.slice(-2), [[true, false], { kept: true }]);
  assert.deepEqual(cell.value, published.value);
  assert.ok(cell.interrupts > 0);
  assert.equal(cell.interrupts, published.interrupts);
});

const REQUESTS = `
  const texts = ["é\\ud83d\\ude00\\ud800", "x".repeat(5000), "a" + "b".repeat(600)];
  const seen = [];
  for (const value of texts) seen.push(await call({ value }));
  // Code of the program that runs while the host delivers an answer.
  Object.defineProperty(Object.prototype, "then", {
    get() { if (seen.length < 6) { seen.push("get"); text("nested"); call("nested"); } },
    configurable: true,
  });
  const last = await call("last");
  delete Object.prototype.then;
  try { await call("rejected"); } catch (error) { seen.push(error.message, error.stack.includes("cell.js")); }
  return [seen, last.value];
`;

test("the engine for wasmtime passes requests and answers in one call each", async () => {
  const special = await buildCellImage({ engine: specializeEngine(engine).emitBinary() });
  const cells = [special, undefined].map((image) => {
    const cell = new Cell(image && { image });
    cell.defineFunctions(["call"]);
    cell.start(REQUESTS);
    const answers = [["1"], ["2"], ["3"], [{ value: "é" }]];
    answers.forEach(([value], index) => cell.deliver([index + 1, true, value]));
    const { id } = cell.requests.find(({ input }) => input === "rejected");
    cell.deliver([id, false, { message: "no" }]);
    return cell;
  });
  const [cell, published] = cells;
  assert.deepEqual(cell.value, published.value);
  assert.deepEqual(cell.requests, published.requests);
  assert.deepEqual(cell.said, published.said);
  assert.ok(cell.said.includes("nested"));
  assert.deepEqual([cell.directRequests, published.directRequests], [cell.requests.length, 0]);
  assert.deepEqual(cells.map((each) => each.unhandledFailure()), [null, null]);
});

test("a text that does not fit in memory is no exception of the program", async () => {
  const image = await buildCellImage({ engine: specializeEngine(engine).emitBinary() });
  const cell = new Cell({ image });
  cell.defineFunctions(["call"]);
  cell.start("return await call()");
  cell.limitMemory(0);
  assert.throws(() => cell.deliver([1, true, "x".repeat(1 << 20)]), /the guest has no memory for the text/);
});

test("an engine of another build is refused", () => {
  const empty = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);
  assert.throws(() => specializeEngine(empty), /found 0 loops of an interpreter/);
  // The same module, with the debugging flags elsewhere.
  const changed = engine.slice();
  const setter = Buffer.from(changed).indexOf(Uint8Array.of(0x3b, 0x00, 0xf1, 0x05));
  changed[setter + 2] = 0xf3;
  assert.throws(() => specializeEngine(changed), /expected a dump for each instruction, found 0/);
});

test("building the image twice gives the same bytes and the same facts", async () => {
  const [first, second] = [await buildCellImage(), await buildCellImage()];
  assert.deepEqual(second.facts, first.facts);
  assert.ok(Buffer.from(first.wasm).equals(Buffer.from(second.wasm)));
});

test("another guest gives another image", async () => {
  const [plain, changed] = [
    await buildCellImage(),
    await buildCellImage({ wrapInstall: "(install) => (global, host) => { global.extra = 1; return install(global, host); }" }),
  ];
  assert.notEqual(changed.facts.sha256, plain.facts.sha256);
  assert.equal(valueOf("return extra", { image: changed }), 1);
});

test("the image carries no source text of the guest", async () => {
  const { wasm } = await buildCellImage();
  const bytes = Buffer.from(wasm);
  assert.ok(bytes.includes("module access is disabled in cells"), "the guest's strings are there");
  assert.ok(!bytes.includes("__proto__:null"), "but not its minified source");
});

test("two VMs of one image know nothing of each other", () => {
  const first = new Cell();
  const second = new Cell();
  first.start("globalThis.mark = 1; Object.prototype.polluted = 1; text = null; return 1");
  second.start("return [typeof mark, typeof {}.polluted, typeof text]");
  assert.deepEqual(second.value, ["undefined", "undefined", "function"]);
});

test("the seed of Math.random is where the facts say", async () => {
  const { facts } = await buildCellImage();
  const draws = [1n, 1n, 2n].map((seed) => {
    const cell = new Cell();
    cell.seedRandom(facts.randomState, seed);
    cell.start("return [Math.random(), Math.random()]");
    return cell.completed[0];
  });
  assert.equal(draws[1], draws[0]);
  assert.notEqual(draws[2], draws[0]);
});

test("the clock of a cell is the host's, not the build's", () => {
  const cell = startCell("return [Date.now(), new Date().toISOString()]", { nowMs: 1_900_000_000_123 });
  assert.deepEqual(cell.value, [1_900_000_000_123, "2030-03-17T17:46:40.123Z"]);
});
