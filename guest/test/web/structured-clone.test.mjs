/** structuredClone inside the VM against Node's, and against the standard where Node leaves it. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { assertSameAsNode, startVm } from "./quickjs.mjs";

test("plain data of every kind is copied as in Node", () =>
  assertSameAsNode(() => {
    const source = {
      list: [1, , "x", null, undefined], nested: { a: { b: [true, -0, NaN, Infinity] } }, big: 12345678901234567890n,
      boxed: [Object(1), Object("s"), Object(false), Object(1n)],
    };
    const copy = structuredClone(source);
    return [
      copy !== source, copy.nested !== source.nested, copy.list.length, 1 in copy.list, 4 in copy.list, String(copy.big),
      Object.is(copy.nested.a.b[1], -0), copy.nested.a.b.map(String), copy.boxed.map((box) => [typeof box, String(box)]),
    ];
  }));

test("Map and Set keep order, keys and identity, as in Node", () =>
  assertSameAsNode(() => {
    const shared = { shared: true };
    const { map, set } = structuredClone({ map: new Map([[shared, 1], ["b", shared]]), set: new Set([shared, 3, "x"]) });
    const [key] = map.keys();
    const [member] = set;
    return [map instanceof Map, set instanceof Set, map.size, set.size, key === member, key === map.get("b"), key, [...set]];
  }));

test("Date and RegExp are copied as in Node", () =>
  assertSameAsNode(() => {
    const pattern = /a+(?<n>b)/giu;
    pattern.lastIndex = 3;
    const [date, invalid, regexp] = structuredClone([new Date(86_400_000), new Date(NaN), pattern]);
    return [
      date instanceof Date, date.toISOString(), Number.isNaN(invalid.getTime()), regexp instanceof RegExp, regexp.source,
      regexp.flags, regexp.lastIndex,
    ];
  }));

test("errors keep their class, message and cause, as in Node", () =>
  assertSameAsNode(
    (kind) => {
      const makers = {
        Error: () => new Error("m", { cause: { why: 1 } }),
        TypeError: () => new TypeError("t"),
        RangeError: () => new RangeError("r"),
        custom: () => Object.assign(new (class Custom extends Error {})("c"), { extra: 1 }),
        renamed: () => Object.assign(new Error("n"), { name: "Other" }),
      };
      const copy = structuredClone(makers[kind]());
      return [
        copy instanceof Error, copy.constructor.name, copy.name, copy.message, copy.cause, typeof copy.stack, Object.keys(copy),
      ];
    },
    ["Error", "TypeError", "RangeError", "custom", "renamed"],
  ));

test("binary data is copied as in Node", () =>
  assertSameAsNode(() => {
    const buffer = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer;
    const source = {
      buffer, part: new Uint8Array(buffer, 2, 3), words: new Uint16Array(buffer, 2, 2), view: new DataView(buffer, 1, 2),
      floats: Float64Array.of(1.5, NaN), bigs: BigInt64Array.of(-1n), clamped: Uint8ClampedArray.of(300),
    };
    const copy = structuredClone(source);
    source.part[0] = 99;
    return [
      copy.buffer instanceof ArrayBuffer, copy.buffer !== buffer, copy.part.buffer === copy.buffer, copy.view.buffer === copy.buffer,
      [...copy.part], copy.part.byteOffset, [...copy.words], copy.view.byteLength, [...copy.floats].map(String),
      [...copy.bigs].map(String), [...copy.clamped], Object.keys(copy).map((key) => copy[key].constructor.name),
    ];
  }));

test("cycles and shared references are kept as in Node", () =>
  assertSameAsNode(() => {
    const source = { name: "root", list: [] };
    source.self = source;
    source.list.push(source.list, source);
    source.map = new Map([["me", source]]);
    const copy = structuredClone(source);
    return [copy.self === copy, copy.list[0] === copy.list, copy.list[1] === copy, copy.map.get("me") === copy, copy !== source];
  }));

test("class instances become plain objects of their own visible properties, as in Node", () =>
  assertSameAsNode(() => {
    class Point {
      #hidden = 1;
      x = 1;
      get doubled() {
        return this.#hidden * 2;
      }
    }
    const source = Object.assign(new Point(), { [Symbol("s")]: 1 });
    Object.defineProperty(source, "invisible", { value: 1, enumerable: false });
    Object.defineProperty(source, "computed", { get: () => 7, enumerable: true });
    const copy = structuredClone(source);
    const frozen = structuredClone(Object.freeze({ a: 1 }));
    return [Reflect.ownKeys(copy).map(String), copy.computed, copy.constructor === Object, Object.isFrozen(frozen)];
  }));

test("a property called __proto__ stays a property, as in Node", () =>
  assertSameAsNode(() => {
    const copy = structuredClone(JSON.parse('{"__proto__": {"polluted": 1}}'));
    return [Object.keys(copy), copy.polluted === undefined, Object.getPrototypeOf(copy) === Object.prototype];
  }));

test("what cannot be copied throws a DataCloneError, as in Node", () =>
  assertSameAsNode(
    (kind) => {
      const makers = {
        function: () => () => 1,
        method: () => ({ deep: [{ call() {} }] }),
        symbol: () => Symbol("s"),
        weakMap: () => new WeakMap(),
        promise: () => Promise.resolve(),
        weakRef: () => new WeakRef({}),
        class: () => class {},
        generator: () => (function* () {})(),
      };
      try {
        return typeof structuredClone(makers[kind]());
      } catch (error) {
        return [error instanceof DOMException, error.name, error.code];
      }
    },
    ["function", "method", "symbol", "weakMap", "promise", "weakRef", "class", "generator"],
  ));

test("a transferred buffer moves, as in Node", () =>
  assertSameAsNode(() => {
    const buffer = Uint8Array.of(1, 2, 3).buffer;
    const copy = structuredClone({ buffer, view: new Uint8Array(buffer, 1) }, { transfer: [buffer] });
    return [buffer.byteLength, [...new Uint8Array(copy.buffer)], [...copy.view]];
  }));

test("bad transfers and missing arguments fail as in Node", () =>
  assertSameAsNode(
    (kind) => {
      const buffer = new ArrayBuffer(1);
      return {
        twice: () => structuredClone(1, { transfer: [buffer, buffer] }),
        nothing: () => structuredClone(),
        undefined: () => String(structuredClone(undefined)),
        nullOptions: () => structuredClone(1, null),
      }[kind]();
    },
    ["twice", "nothing", "undefined", "nullOptions"],
  ));

test("AggregateError and DOMException are copied with what they carry", async () => {
  const vm = await startVm();
  const copies = vm.run(() => {
    const aggregate = structuredClone(new AggregateError([new TypeError("inner")], "outer"));
    const exception = structuredClone(new DOMException("gone", "AbortError"));
    return [
      aggregate instanceof AggregateError, aggregate.message, aggregate.errors[0] instanceof TypeError,
      exception instanceof DOMException, exception.name, exception.code, exception.message,
    ];
  });
  assert.deepEqual(copies, [true, "outer", true, true, "AbortError", 20, "gone"]);
});

test("URL objects are not cloneable and plain ones not transferable, as in browsers", async () => {
  const vm = await startVm();
  const names = vm.run(() =>
    [() => structuredClone(new URL("http://h")), () => structuredClone(1, { transfer: [{}] })].map((call) => {
      try {
        return call();
      } catch (error) {
        return error.name;
      }
    }),
  );
  assert.deepEqual(names, ["DataCloneError", "DataCloneError"]);
});
