import assert from "node:assert/strict";
import test from "node:test";

import { type Blocks, NO_BLOCKS, hasGrownEnough, splitBlocks } from "../src/model/markdown_blocks";

const TEXT = `# Title

A paragraph with **bold**
and a second line.

- one
- two

  still two

\`\`\`js
const a = 1;

const b = 2;
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

[link][ref]

[ref]: https://example.com
`;

test("a text that grows ends with the same blocks as the whole text", () => {
  for (const size of [1, 7, 40]) {
    let blocks: Blocks = NO_BLOCKS;
    for (let end = size; end < TEXT.length + size; end += size) blocks = splitBlocks(TEXT.slice(0, end), blocks);
    assert.equal(blocks.text, TEXT);
    assert.equal(blocks.blocks.map((block) => block.source).join(""), TEXT);
    assert.deepEqual(blocks.blocks, splitBlocks(TEXT).blocks, `pieces of ${size}`);
    assert.match(blocks.definitions, /example\.com/);
  }
});

test("blocks before the last one are not parsed again", () => {
  const before = splitBlocks("one\n\ntwo\n\nthr");
  const after = splitBlocks("one\n\ntwo\n\nthree", before);
  assert.equal(after.blocks.length, 3);
  assert.ok(after.blocks[0] === before.blocks[0] && after.blocks[1] === before.blocks[1]);
  assert.equal(after.blocks[2]?.source, "three");
});

test("a fence that is still open is already code", () => {
  const block = splitBlocks("Look:\n\n```python\nprint(1)\n").blocks[1];
  assert.equal(block?.code, "print(1)");
  assert.equal(block?.language, "python");
});

test("another text starts anew, and line ends do not matter", () => {
  const before = splitBlocks("one\n\ntwo");
  assert.deepEqual(splitBlocks("uno\r\n\r\ndos", before).blocks.map(({ source }) => source), ["uno\n\n", "dos"]);
  assert.deepEqual(splitBlocks("").blocks, []);
});

test("a long block without a blank line is extended and not parsed again", () => {
  const line = "pearl **and** shell ".repeat(10_000);
  const first = splitBlocks(line);
  const longer = splitBlocks(`${line}more`, first);
  assert.equal(longer.blocks.length, 1);
  assert.equal(longer.blocks[0]?.source, `${line}more`);
  const next = splitBlocks(`${line}more\n\n# title`, longer);
  assert.deepEqual(next.blocks.map(({ source }) => source.slice(-7)), ["more\n\n".padStart(7, " ").slice(-7), "# title"]);
});

test("a long growing block is drawn again when it has grown by a tenth", () => {
  const known = splitBlocks("x".repeat(30_000));
  assert.equal(hasGrownEnough("x".repeat(30_100), known), false);
  assert.equal(hasGrownEnough("x".repeat(34_000), known), true);
  assert.equal(hasGrownEnough("another text", known), true);
  assert.equal(hasGrownEnough("short and longer", splitBlocks("short")), true);
});

test("a text that is nested too deeply for the parser is one block", () => {
  const text = `${">".repeat(50_000)} deep`;
  assert.deepEqual(splitBlocks(text).blocks.map(({ source }) => source), [text]);
});

test("only blocks that could take seconds to draw are plain", () => {
  const isPlain = (text: string) => splitBlocks(text).blocks.some((block) => block.isPlain);
  const deep = Array.from({ length: 250 }, (_, level) => `${"  ".repeat(level)}- a\n`).join("");
  assert.deepEqual([isPlain("_a".repeat(20_000)), isPlain(deep), isPlain(`|${"_a".repeat(20_000)}|b|\n|-|-|\n|1|2|`)], [true, true, true]);
  const table = `|a|b|\n|-|-|\n${"|some words|more words|\n".repeat(3000)}`;
  const prose = "Some **words** of a text.\n\n".repeat(5000);
  const list = "- an item of a list\n".repeat(1500);
  assert.deepEqual([isPlain(table), isPlain(prose), isPlain(list)], [false, false, false]);
});
