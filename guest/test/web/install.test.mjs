/** What the image contains after installWebApis, and what it costs. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { bundleWebPart, createBareVm, startVm } from "./quickjs.mjs";

const MAX_HEAP_BYTES = 1_000_000;

const apis = [
  "DOMException", "TextDecoder", "TextEncoder", "URL", "URLSearchParams", "atob", "btoa", "crypto", "queueMicrotask", "structuredClone",
];

test("the engine brings DOMException, atob, btoa and queueMicrotask, and only these of ours", async () => {
  const vm = await createBareVm();
  const names = vm.evalCode(`JSON.stringify(${JSON.stringify(apis)}.filter((name) => name in globalThis))`);
  assert.deepEqual(JSON.parse(vm.dump(names)), ["DOMException", "atob", "btoa", "queueMicrotask"]);
});

test("every API is a hidden, writable, configurable global", async () => {
  const vm = await startVm();
  const descriptors = vm.run(
    (names) =>
      names.map((name) => {
        const { enumerable, writable, configurable } = Object.getOwnPropertyDescriptor(globalThis, name);
        return [name, enumerable, writable, configurable];
      }),
    apis,
  );
  assert.deepEqual(descriptors, apis.map((name) => [name, false, true, true]));
});

test("nothing else is left in the global scope", async () => {
  const bare = await createBareVm();
  const before = JSON.parse(bare.dump(bare.evalCode("JSON.stringify(Reflect.ownKeys(globalThis).map(String))")));
  const vm = await startVm();
  const after = vm.run(() => Reflect.ownKeys(globalThis).map(String));
  assert.deepEqual(
    after.filter((name) => !before.includes(name)).sort(),
    apis.filter((name) => !before.includes(name)),
  );
});

test("names survive the minifier", async () => {
  const vm = await startVm();
  const names = ["TextDecoder", "TextEncoder", "URL", "URLSearchParams", "structuredClone"];
  assert.deepEqual(vm.run((names) => names.map((name) => globalThis[name].name), names), names);
  assert.equal(vm.run(() => new URL("http://h").constructor.name), "URL");
});

test("what the engine already has is left alone", async () => {
  const vm = await createBareVm();
  vm.evalCode("globalThis.hostRandomBytes = () => {}; globalThis.URL = 1; globalThis.native = atob;").dispose();
  vm.evalCode(await bundleWebPart()).dispose();
  assert.equal(vm.dump(vm.evalCode("URL === 1 && atob === native && typeof TextDecoder")), "function");
});

test("the web part stays within its share of the image", async () => {
  const vm = await createBareVm();
  vm.evalCode("globalThis.hostRandomBytes = () => {}").dispose();
  vm.runGC();
  const before = vm.getMemoryUsage().memoryUsedSize;
  vm.evalCode(await bundleWebPart()).dispose();
  vm.runGC();
  const growth = vm.getMemoryUsage().memoryUsedSize - before;
  assert.ok(growth < MAX_HEAP_BYTES, `${growth} bytes of heap`);
});

test("queueMicrotask runs after the program, in order with promises", async () => {
  const vm = await startVm();
  vm.run(() => {
    globalThis.order = [];
    Promise.resolve().then(() => order.push("promise"));
    queueMicrotask(() => order.push("microtask"));
    order.push("program");
  });
  assert.deepEqual(vm.run(() => order), ["program", "promise", "microtask"]);
});
