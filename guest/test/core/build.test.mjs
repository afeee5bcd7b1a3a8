/** The image: the same inputs give the same bytes, and every VM of it starts alike. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { buildCellImage, Cell, startCell, valueOf } from "./cell.mjs";

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
