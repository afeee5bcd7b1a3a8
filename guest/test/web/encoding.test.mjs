/** TextDecoder and TextEncoder inside the VM against Node's, and against the standard. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { assertSameAsNode, startVm } from "./quickjs.mjs";

const malformedUtf8 = [
  [0xff], [0x80], [0xc0, 0x80], [0xc3], [0xc3, 0x28], [0xe2, 0x82], [0xe2, 0x28, 0xa1], [0xed, 0xa0, 0x80],
  [0xed, 0xb0, 0x80, 0x41], [0xf0, 0x9f, 0x98], [0xf0, 0x9f, 0x41], [0xf0, 0x80, 0x80, 0x80], [0xf4, 0x90, 0x80, 0x80],
  [0xf5, 0x80, 0x80, 0x80], [0xe0, 0x80, 0xaf], [0x41, 0xe2, 0x82, 0x41], [0xfe, 0xff], [0xc2, 0xc2, 0xa9],
];
const wellFormedUtf8 = [
  [], [0x00, 0x41, 0x7f], [0xc3, 0xa9], [0xe2, 0x82, 0xac], [0xf0, 0x9f, 0x98, 0x80], [0xf4, 0x8f, 0xbf, 0xbf],
  [0xef, 0xbb, 0xbf], [0xef, 0xbb, 0xbf, 0x41], [0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf], [0x41, 0xef, 0xbb, 0xbf],
];

test("UTF-8 is decoded as in Node under every option", () =>
  assertSameAsNode(
    ({ bytes, options }) => new TextDecoder("utf-8", options).decode(Uint8Array.from(bytes)),
    [...malformedUtf8, ...wellFormedUtf8].flatMap((bytes) =>
      [{}, { fatal: true }, { ignoreBOM: true }, { fatal: true, ignoreBOM: true }].map((options) => ({ bytes, options })),
    ),
  ));

test("a stream decodes the same however it is cut, as in Node", () => {
  const bytes = [0xef, 0xbb, 0xbf, 0x41, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xe2, 0x82, 0x42, 0xf0, 0x9f];
  const cuts = bytes.flatMap((_, first) => bytes.slice(first).map((_, length) => [first, first + length]));
  return assertSameAsNode(
    ({ bytes, cut: [first, second] }) => {
      const decoder = new TextDecoder();
      const whole = Uint8Array.from(bytes);
      return (
        decoder.decode(whole.subarray(0, first), { stream: true }) +
        decoder.decode(whole.subarray(first, second), { stream: true }) +
        decoder.decode(whole.subarray(second))
      );
    },
    cuts.map((cut) => ({ bytes, cut })),
  );
});

test("a decoder is fresh after the end of a stream, as in Node", () =>
  assertSameAsNode(() => {
    const decoder = new TextDecoder();
    const seen = [decoder.decode(Uint8Array.of(0xe2, 0x82), { stream: true }), decoder.decode()];
    seen.push(decoder.decode(Uint8Array.of(0xef, 0xbb, 0xbf, 0x41)), decoder.decode(Uint8Array.of(0x42)));
    return seen;
  }));

test("a fatal stream rejects only what can never become text, as in Node", () =>
  assertSameAsNode(
    (chunks) => {
      const decoder = new TextDecoder("utf-8", { fatal: true });
      return chunks.map((chunk) => decoder.decode(Uint8Array.from(chunk), { stream: true })).concat(decoder.decode());
    },
    [[[0xe2], [0x82], [0xac]], [[0xe2], [0x82]], [[0xe2], [0x41]], [[0xff]], [[0xf0, 0x9f], [0x98, 0x80, 0x41]]],
  ));

test("UTF-16 is decoded as in Node", () =>
  assertSameAsNode(
    ({ label, bytes, fatal }) => new TextDecoder(label, { fatal }).decode(Uint8Array.from(bytes)),
    ["utf-16le", "utf-16be"].flatMap((label) =>
      [
        [0x41, 0x00], [0xff, 0xfe, 0x41, 0x00], [0xfe, 0xff, 0x00, 0x41], [0x3d, 0xd8, 0x00, 0xde], [0x3d, 0xd8],
        [0x00, 0xdc, 0x41, 0x00], [0x41], [],
      ].flatMap((bytes) => [false, true].map((fatal) => ({ label, bytes, fatal }))),
    ),
  ));

test("latin1 is windows-1252, as the standard says", async () => {
  const vm = await startVm();
  const texts = vm.run(() =>
    ["latin1", "iso-8859-1", "ascii", "windows-1252"].map((label) =>
      new TextDecoder(label).decode(Uint8Array.of(0x41, 0x80, 0x81, 0x9f, 0xa0, 0xe9, 0xff)),
    ),
  );
  assert.deepEqual(new Set(texts), new Set(["A\u20ac\u0081\u0178\u00a0\u00e9\u00ff"]));
});

test("single-byte encodings are decoded as in Node", () =>
  assertSameAsNode(
    (label) => new TextDecoder(label).decode(Uint8Array.from({ length: 256 }, (_, byte) => byte)),
    ["iso-8859-2", "windows-1251", "koi8-r", "iso-8859-15", "macintosh"],
  ));

test("labels are normalised, unknown ones refused, as in Node", () =>
  assertSameAsNode(
    (label) => {
      const { encoding, fatal, ignoreBOM } = new TextDecoder(label);
      return { encoding, fatal, ignoreBOM };
    },
    ["UTF8", " utf-8\n", "unicode-1-1-utf-8", "UTF-16", "utf-16le", "Latin1", "l1", "nonsense", "", "utf-8\u0000", "utf-7"],
  ));

test("East Asian legacy encodings are refused at once, with their name", async () => {
  const vm = await startVm();
  const messages = vm.run(() =>
    ["big5", "gbk", "gb18030", "euc-jp", "iso-2022-jp", "sjis", "euc-kr"].map((label) => {
      try {
        return new TextDecoder(label);
      } catch (error) {
        return `${error.name}: ${error.message}`;
      }
    }),
  );
  assert.equal(messages[0], 'RangeError: The "big5" encoding is not supported here');
  assert.ok(messages.every((message) => message.startsWith("RangeError: ")));
});

test("every kind of buffer is decoded, other input refused, as in Node", () =>
  assertSameAsNode(
    (kind) => {
      const { buffer } = Uint8Array.of(0x58, 0x41, 0x42, 0x43, 0x44, 0x58, 0x58, 0x58);
      const inputs = {
        buffer: () => buffer,
        dataView: () => new DataView(buffer, 1, 4),
        subarray: () => new Uint8Array(buffer, 1, 4),
        uint16: () => new Uint16Array(buffer, 2, 1),
        nothing: () => undefined,
        text: () => "abc",
        list: () => [65],
        nil: () => null,
      };
      return new TextDecoder().decode(inputs[kind]());
    },
    ["buffer", "dataView", "subarray", "uint16", "nothing", "text", "list", "nil"],
  ));

const texts = [
  "", "abc", "é€😀", "\u0000\u007f\u0080\u07ff\u0800\uffff", "\ud800", "\udc00", "a\ud83d", "\ude00\ud83d", "\ud83d\ud83d\ude00",
  "\ud800a", "x".repeat(5000), "ü".repeat(5000),
];

test("text is encoded as in Node, lone surrogates replaced", () =>
  assertSameAsNode((text) => [...new TextEncoder().encode(text)], texts));

test("encode converts what is no text, as in Node", () =>
  assertSameAsNode(
    (value) => [...new TextEncoder().encode(value)],
    [5, true, null, [1, 2]],
  ));

test("encodeInto fills whole characters only, as in Node", () =>
  assertSameAsNode(
    ({ text, size }) => {
      const target = new Uint8Array(size).fill(0x2e);
      return [new TextEncoder().encodeInto(text, target), [...target]];
    },
    texts.slice(0, 10).flatMap((text) => [0, 1, 2, 3, 4, 5, 9, 20].map((size) => ({ text, size }))),
  ));

test("long texts survive the round trip", async () => {
  const vm = await startVm();
  const same = vm.run(() => {
    const text = "line é€😀\n".repeat(20_000);
    return new TextDecoder().decode(new TextEncoder().encode(text)) === text;
  });
  assert.equal(same, true);
});
