/** The engine's own atob and btoa against Node's: an engine update must not change them unseen. */
import { test } from "node:test";

import { assertSameAsNode } from "./quickjs.mjs";

test("atob decodes and refuses as in Node", () =>
  assertSameAsNode(
    (text) => atob(text),
    [
      "", "aGk=", "aGk", " a\tG\nk\f=\r ", "//8=", "YQ=\n=", "ab==", "YWJj".repeat(1000),
      "a", "=", "ab=", "ab===", "ab=c", "%", "__8=", "aGk=\u000b", "é", "YQ==YQ==",
    ],
  ));

test("btoa encodes and refuses as in Node", () =>
  assertSameAsNode((text) => btoa(text), ["", "a", "ab", "abc", "\u0000\u00ff", "\u0100", "😀", 5, null, "x".repeat(1000)]));

test("a refusal is a DOMException named InvalidCharacterError", () =>
  assertSameAsNode(
    (call) => {
      try {
        return { atob, btoa }[call]("\u0100");
      } catch (error) {
        return [error instanceof DOMException, error instanceof Error, error.name, error.code];
      }
    },
    ["atob", "btoa"],
  ));
