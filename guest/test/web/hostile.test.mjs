/** Programs that tamper with the intrinsics: they break themselves, not the engine, and reach no host function. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { startVm } from "./quickjs.mjs";

// Each line runs in a program that knows `evil` (a function that remembers what it is given) and `replaceAll`.
const tamperings = {
  "Array.prototype": "replaceAll(Array.prototype)",
  "the array iterator": "replaceAll(Object.getPrototypeOf([].values()))",
  "Object, Reflect and JSON": "replaceAll(Object); replaceAll(Reflect); replaceAll(JSON)",
  "Object.prototype with accessors": `
    const accessor = { __proto__: null, get: evil, set: evil, configurable: true };
    for (const key of ["value", "length", "Float32Array", "DataView", "stream", "fatal", "transfer", "0", "6", "8"]) {
      defineProperty(Object.prototype, key, accessor);
    }`,
  "typed arrays": `
    replaceAll(Uint8Array);
    replaceAll(Object.getPrototypeOf(Uint8Array.prototype));
    replaceAll(Uint8Array.prototype);
    replaceAll(ArrayBuffer);
    replaceAll(ArrayBuffer.prototype)`,
  "String.prototype and RegExp.prototype": "replaceAll(String.prototype); replaceAll(RegExp.prototype)",
  "Function.prototype": "replaceAll(Function.prototype)",
  "Map, Set and Date": "replaceAll(Map.prototype); replaceAll(Set.prototype); replaceAll(Date.prototype)",
  "Error and DOMException": "replaceAll(Error); replaceAll(Error.prototype); replaceAll(DOMException.prototype)",
  "the globals":
    'for (const key of ["JSON", "Promise", "Map", "Set", "Symbol", "Object", "Array", "Uint8Array", "ArrayBuffer", "DataView", "DOMException", "TypeError", "RangeError", "Error", "Math", "RegExp", "String"]) globalThis[key] = evil',
};

/** A program that tampers, uses every API, and then calls every function it got hold of with `forbiddenSize`. */
const hostileProgram = (tampering) => `(forbiddenSize) => {
  "use strict";
  const { defineProperty } = Object, { ownKeys } = Reflect, { Uint8Array: Bytes, Map: OldMap } = globalThis;
  const loot = { __proto__: null, count: 0 };
  const keep = (value) => { if (typeof value === "function" && loot.count < 500) loot[loot.count++] = value; };
  const evil = function (first, second) {
    keep(this);
    keep(first);
    keep(second);
    return first;
  };
  const replaceAll = (target) => {
    const keys = ownKeys(target);
    for (let i = 0; i < keys.length; i++) {
      try {
        defineProperty(target, keys[i], { __proto__: null, value: evil, writable: true, configurable: true });
      } catch {}
    }
  };
  const uses = [
    () => new URL("https://ü.example/a?b=c#d").searchParams.get("b"),
    () => { for (const pair of new URLSearchParams("a=1&b=2")) pair; },
    () => new TextDecoder("utf-8", { fatal: true }).decode(new Bytes(3)),
    () => new TextEncoder().encodeInto("é", new Bytes(4)),
    () => structuredClone({ a: new OldMap([[1, new Date(0)]]), b: [new Bytes(2), new TypeError("x")] }),
    () => structuredClone(() => 1),
    () => atob(btoa("x")),
    () => crypto.getRandomValues(new Bytes(forbiddenSize)),
    () => crypto.getRandomValues({}),
  ];
  ${tampering};
  for (let i = 0; i < uses.length; i++) try { uses[i](); } catch {}
  const looted = loot.count;
  for (let i = 0; i < looted; i++) {
    try { loot[i](forbiddenSize); } catch {}
    try { new loot[i](forbiddenSize); } catch {}
  }
  const bytes = crypto.getRandomValues(new Bytes(2));
  return crypto.randomUUID() + " " + bytes[0] + " " + bytes[1];
}`;

for (const [what, tampering] of Object.entries(tamperings)) {
  test(`overwriting ${what} neither stops the engine nor opens the random source`, async () => {
    const forbiddenSize = 100_001;
    const vm = await startVm({ randomBytes: (size) => new Uint8Array(size).fill(0xab) });

    const outcome = vm.run(hostileProgram(tampering), forbiddenSize);

    assert.equal(outcome, "abababab-abab-4bab-abab-abababababab 171 171");
    assert.ok(!vm.randomSizes.some((size) => size > 65_536), `asked for ${vm.randomSizes} bytes`);
  });
}

test("no stack hook hands out the functions on the stack", async () => {
  const vm = await startVm({
    randomBytes: () => {
      throw new Error("the host has no randomness");
    },
  });
  const caught = vm.run(() => {
    let frames = 0;
    Error.prepareStackTrace = TypeError.prepareStackTrace = DOMException.prepareStackTrace = () => ++frames;
    for (const call of [() => crypto.randomUUID(), () => crypto.getRandomValues(new Uint8Array(70_000)), () => new URL("x")]) {
      try {
        call();
      } catch (error) {
        String(error.stack);
      }
    }
    return frames;
  });
  assert.equal(caught, 0);
});

test("objects of the APIs lead to no host function", async () => {
  const vm = await startVm();
  const found = vm.run(() => {
    const seen = new Set();
    const queue = [new URL("http://h/?a=1"), new URLSearchParams(), new TextDecoder(), new TextEncoder(), crypto, structuredClone];
    while (queue.length > 0 && seen.size < 20_000) {
      const value = queue.pop();
      if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) continue;
      seen.add(value);
      queue.push(Object.getPrototypeOf(value));
      for (const { value: inner, get, set } of Object.values(Object.getOwnPropertyDescriptors(value))) queue.push(inner, get, set);
      for (const key of Object.getOwnPropertySymbols(value)) queue.push(Object.getOwnPropertyDescriptor(value, key).value);
    }
    return [...seen].filter((value) => typeof value === "function" && value.name === "hostRandomBytes").length;
  });
  assert.equal(found, 0);
});
