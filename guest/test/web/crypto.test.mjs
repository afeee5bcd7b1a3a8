/** crypto over the host's random source: shapes, quotas, and nothing of the source itself. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { assertSameAsNode, startVm } from "./quickjs.mjs";

const attempt = `(call) => {
  try {
    return call();
  } catch (error) {
    return [error.name, error instanceof DOMException];
  }
}`;

test("randomUUID writes sixteen host bytes as a version 4 UUID", async () => {
  const vm = await startVm({ randomBytes: (size) => new Uint8Array(size).fill(0xff) });
  assert.equal(vm.run(() => crypto.randomUUID()), "ffffffff-ffff-4fff-bfff-ffffffffffff");
  assert.deepEqual(vm.randomSizes, [16]);
});

test("UUIDs are well formed and differ, also between VMs of one image", async () => {
  const vms = await Promise.all([startVm(), startVm()]);
  const uuids = vms.flatMap((vm) => vm.run(() => Array.from({ length: 200 }, () => crypto.randomUUID())));
  assert.equal(new Set(uuids).size, 400);
  for (const uuid of uuids) assert.match(uuid, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("getRandomValues fills exactly the view and returns it", async () => {
  const vm = await startVm({ randomBytes: (size) => Uint8Array.from({ length: size }, (_, i) => i + 1) });
  const seen = vm.run(() => {
    const whole = new Uint8Array(8);
    const part = new Uint16Array(whole.buffer, 2, 2);
    return [crypto.getRandomValues(part) === part, [...whole]];
  });
  assert.deepEqual(seen, [true, [0, 0, 1, 2, 3, 4, 0, 0]]);
  assert.deepEqual(vm.randomSizes, [4]);
});

test("getRandomValues takes the integer types and refuses the others, as in Node", () =>
  assertSameAsNode(
    (type) => crypto.getRandomValues(new globalThis[type](type === "DataView" ? new ArrayBuffer(8) : 8)).constructor.name,
    [
      "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
      "BigInt64Array", "BigUint64Array", "Float32Array", "Float64Array", "DataView",
    ],
  ));

test("what is no view is a TypeError", async () => {
  const vm = await startVm();
  const outcomes = vm.run(`() => {
    const attempt = ${attempt};
    return [undefined, null, 5, "x", {}, [1], new ArrayBuffer(8), { byteLength: 8, buffer: new ArrayBuffer(8) }].map((value) =>
      attempt(() => crypto.getRandomValues(value)));
  }`);
  assert.deepEqual(outcomes, Array(8).fill(["TypeError", false]));
  assert.deepEqual(vm.randomSizes, []);
});

test("the quota is 65536 bytes, whatever the element size", async () => {
  const vm = await startVm();
  const outcomes = vm.run(`() => {
    const attempt = ${attempt};
    const sizes = [[Uint8Array, 65536], [Uint8Array, 65537], [Uint32Array, 16384], [Uint32Array, 16385], [BigInt64Array, 8193]];
    return sizes.map(([Type, length]) => attempt(() => crypto.getRandomValues(new Type(length)).length));
  }`);
  const refused = ["QuotaExceededError", true];
  assert.deepEqual(outcomes, [65536, refused, 16384, refused, refused]);
  assert.deepEqual(vm.randomSizes, [65536, 65536]);
});

test("a view that lies about itself gets no more than it has", async () => {
  const vm = await startVm();
  const outcomes = vm.run(`() => {
    const attempt = ${attempt};
    const lie = (array, lies) => Object.defineProperties(array, Object.fromEntries(Object.entries(lies).map(([key, value]) => [key, { value }])));
    const detached = new Uint8Array(8);
    detached.buffer.transfer();
    Object.prototype.Float32Array = true;
    return [
      attempt(() => crypto.getRandomValues(lie(new Uint8Array(4), { byteLength: 1e9, length: 1e9, buffer: null })).length),
      attempt(() => crypto.getRandomValues(lie(new Uint8Array(65537), { byteLength: 1 })).length),
      attempt(() => crypto.getRandomValues(lie(new Float32Array(4), { [Symbol.toStringTag]: "Uint8Array" })).length),
      attempt(() => crypto.getRandomValues(Object.setPrototypeOf(new Float32Array(4), Uint8Array.prototype)).length),
      attempt(() => crypto.getRandomValues(new Proxy(new Uint8Array(4), {})).length),
      attempt(() => crypto.getRandomValues(detached).length),
      attempt(() => crypto.getRandomValues(new (class Mine extends Uint8Array {})(4)).length),
    ];
  }`);
  assert.deepEqual(outcomes, [
    1e9, ["QuotaExceededError", true], ["TypeMismatchError", true], ["TypeMismatchError", true], ["TypeError", false], 0, 4,
  ]);
  assert.deepEqual(vm.randomSizes, [4, 4]);
});

test("crypto is one object with hidden making", async () => {
  const vm = await startVm();
  const seen = vm.run(`() => {
    const attempt = ${attempt};
    const { randomUUID, getRandomValues } = crypto;
    return [
      Object.prototype.toString.call(crypto), crypto.constructor.name, Reflect.ownKeys(crypto),
      attempt(() => new crypto.constructor()), attempt(() => randomUUID()), attempt(() => getRandomValues.call({}, new Uint8Array(1))),
    ];
  }`);
  assert.deepEqual(seen, ["[object Crypto]", "Crypto", [], ["TypeError", false], ["TypeError", false], ["TypeError", false]]);
});
