/** URLSearchParams inside the VM against Node's. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { assertSameAsNode, startVm } from "./quickjs.mjs";

test("text is parsed and written as in Node", () =>
  assertSameAsNode(
    (text) => {
      const params = new URLSearchParams(text);
      return [[...params], String(params), params.size];
    },
    [
      "", "?", "a=1&b=2", "?a=1&a=2&A=3", "a", "a=", "=b", "=", "&&a&&", "a=b=c", "a+b=c+d", "a%20b=%2B", "%zz=%4",
      "%C3%A9=%e9", "é=ü", "a=\u{1F600}", "x=\ud800", "a=~!*()'-._", "a;b", "??a",
    ],
  ));

test("records and pair lists are accepted as in Node", () =>
  assertSameAsNode(
    (init) => [...new URLSearchParams(init)],
    [{ a: "1", b: 2, c: true }, {}, [["a", "1"], ["a", "2"]], [], [["a"]], [["a", "b", "c"]], 5, [1]],
  ));

test("null is the text it converts to, as the standard says and Node does not", async () => {
  const vm = await startVm();
  assert.equal(vm.run(() => String(new URLSearchParams(null))), "null=");
});

test("iterables, other params and no argument are accepted as in Node", () =>
  assertSameAsNode(() => [
    [...new URLSearchParams(new Map([["a", "1"]]))],
    [...new URLSearchParams(new URLSearchParams("a=1&a=2"))],
    [...new URLSearchParams()],
    [...new URLSearchParams(undefined)],
  ]));

test("order and duplicates are kept through every change, as in Node", () =>
  assertSameAsNode(() => {
    const params = new URLSearchParams("b=1&a=2&b=3&c=4&a=5");
    const seen = [params.get("b"), params.getAll("b"), params.get("none"), params.getAll("none")];
    seen.push(params.has("a"), params.has("a", "5"), params.has("a", "9"));
    params.set("b", "x");
    seen.push(String(params));
    params.append("b", "y");
    params.delete("a", "5");
    seen.push(String(params));
    params.set("new", undefined);
    params.delete("c");
    seen.push(String(params), [...params.keys()], [...params.values()], [...params.entries()], params.size);
    params.forEach((value, key, all) => seen.push([key, value, all === params]));
    return seen;
  }));

test("sort is stable and by UTF-16 units, as in Node", () =>
  assertSameAsNode(
    (text) => {
      const params = new URLSearchParams(text);
      params.sort();
      return String(params);
    },
    ["z=b&a=b&z=a&a=a", "\uFFFD=x&\u{1F4A9}=1&\uFFFD=a", "ﬃ&🌈", "a=1&a=0&A=2&=3", "é&e\uFFFD&e\u0301", ""],
  ));

test("an iterator sees changes made while it runs, as in Node", () =>
  assertSameAsNode(() => {
    const params = new URLSearchParams("a=1&b=2&c=3");
    const seen = [];
    for (const [key] of params) {
      seen.push(key);
      if (key === "a") params.delete("b");
      if (key === "c" && seen.length < 4) params.append("d", "4");
    }
    return seen;
  }));
