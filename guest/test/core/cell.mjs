/**
 * Cells in Node: the image is built in memory and driven the way `nacre.sandbox.worker.vm` drives it, through handles, under
 * a clock that stands still until a test moves it.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";

import { buildImage } from "../../image/build_image.mjs";
import { bundleGuest, GUEST } from "../../image/bundle.mjs";

const WRAPPER = ["(async () => {\n\n", "\n})"];
const EXCEPTION_TAG = 6n;
const MAX_FIRED = 100_000;
const START_TIME_MS = 1_800_000_000_000;

// QuickJS must reach its own stack limit before Node reaches one: the host gives WebAssembly far more than Node does.
setFlagsFromString("--stack-size=3900");

/** The module of the engine, as published. */
export const engine = new Uint8Array(await readFile(fileURLToPath(import.meta.resolve("quickjs-wasi/quickjs.wasm"))));

/**
 * Build the image of cells. `wrapInstall` is source of a function that takes the guest's `install` and returns another
 * in its place, whose further entries are named in `moreEntries`.
 */
export async function buildCellImage({ wrapInstall = "(install) => install", moreEntries = [], engine: wanted = engine } = {}) {
  const { wasm, facts } = buildImage({
    ...GUEST,
    engine: wanted,
    bundle: `(${wrapInstall})(${await bundleGuest()})`,
    entries: [...GUEST.entries, ...moreEntries],
  });
  return { wasm, facts, module: new WebAssembly.Module(wasm) };
}

const cellImage = await buildCellImage();

/** The engine threw while the host drove it; `failure` is what the guest says of the error. */
export class GuestError extends Error {
  constructor(failure) {
    super(failure.message);
    this.failure = failure;
  }
}

/**
 * Start `source` in a VM of its own and run it until it has nothing left to do. `shared` are the parts of the shared
 * data, each a value or, as text, its JSON.
 */
export function startCell(source, { functions = [], ...options } = {}) {
  const cell = new Cell(options);
  if (options.shared) cell.defineCatalog();
  if (functions.length > 0) cell.defineFunctions(functions);
  cell.start(source);
  return cell;
}

/** What the program `source` returns, after JSON; fails if it does not complete by itself. */
export function valueOf(source, options) {
  return JSON.parse(jsonOf(source, options));
}

/** The JSON text with which the program `source` completes. */
export function jsonOf(source, options) {
  const cell = startCell(source, options);
  const unhandled = cell.unhandledFailure();
  if (unhandled) throw new Error(`unhandled: ${unhandled.message}`);
  if (cell.completed.length !== 1) throw new Error(`not completed: ${JSON.stringify(cell.failed)}`);
  return cell.completed[0];
}

/** How the program `source` fails: `{message, stack, memory, modules, host}`. */
export function failureOf(source, options) {
  try {
    const cell = startCell(source, options);
    if (cell.failed.length !== 1) throw new Error(`not failed: ${cell.completed}`);
    return cell.failed[0];
  } catch (error) {
    if (error instanceof GuestError) return error.failure;
    throw error;
  }
}

export class Cell {
  /** What the guest said to the host, in order. */
  outputs = [];
  requests = [];
  /** How many of them came with their text, as from the engine for wasmtime, and not with a handle of it. */
  directRequests = 0;
  pauses = [];
  completed = [];
  failed = [];
  /** How often the engine asked whether to go on: a measure of the steps it took, the same on every machine. */
  interrupts = 0;
  /** Promises rejected without a handler so far: address to handles. */
  rejections = new Map();
  /** What the guest asked of the shared data: `[part]` or `[part, key]` each. */
  lookups = [];

  #shared;
  #image;
  #exports;

  constructor({ image = cellImage, nowMs = START_TIME_MS, memoryLimitBytes = 64 << 20, memory, shared } = {}) {
    this.#image = image;
    this.#shared = shared;
    this.nowMs = nowMs;
    this.#exports = new WebAssembly.Instance(image.module, this.#imports()).exports;
    if (memory) {
      this.#exports.memory.grow((memory.length - this.#exports.memory.buffer.byteLength) / 65536);
      this.#bytes().set(memory);
    }
    this.limitMemory(memoryLimitBytes);
  }

  limitMemory(bytes) {
    this.#exports.qjs_set_memory_limit(this.#image.facts.heapBytes + bytes);
  }

  /** Another VM that goes on from a copy of this one's memory, as after a snapshot. */
  copy({ nowMs = this.nowMs } = {}) {
    const copy = new Cell({ image: this.#image, nowMs, memory: this.#bytes().slice(), shared: this.#shared });
    copy.rejections = new Map(this.rejections);
    return copy;
  }

  defineCatalog() {
    this.#free(this.#callEntry("defineCatalog", this.#newString(this.#lookUp("globals") ?? "[]")));
  }

  defineFunctions(names) {
    this.#free(this.#callEntry("defineFunctions", this.#newString(JSON.stringify(names))));
  }

  start(source) {
    this.#free(this.#callEntry("start", this.evaluate(WRAPPER.join(source), { line: -1 })));
    this.#drainJobs();
  }

  /** Settle requests, `[id, succeeded, value]` each, in one call if the engine can. */
  deliver(...settlements) {
    if (this.#exports.nacre_deliver) return this.#deliverAtOnce(Buffer.from(JSON.stringify(settlements)));
    this.#free(this.#callEntry("deliver", this.#newString(JSON.stringify(settlements))));
    this.#drainJobs();
  }

  #deliverAtOnce(text) {
    const [at, slot] = [this.#newBytes(text), this.#exports.wasm_malloc(4)];
    const nothing = this.#exports.qjs_get_undefined();
    const problem = this.#exports.nacre_deliver(this.entry("deliver"), nothing, at, text.length, slot);
    if (problem === 2) throw new Error("the guest has no memory for the text");
    if (problem !== 0) throw this.#pendingException();
  }

  /** Run every timer that is due, and the promise jobs after each; the number of timers that ran. */
  fireTimers() {
    for (let count = 0; ; count++) {
      const fired = this.#callEntry("fireTimer");
      const isFired = this.#exports.qjs_get_bool(fired);
      this.#free(fired);
      this.#drainJobs();
      if (!isFired) return count;
      if (count > MAX_FIRED) throw new Error("timers fire without end at one instant");
    }
  }

  /** Move the clock from timer to timer until `ms` have passed. */
  advance(ms) {
    const end = this.nowMs + ms;
    for (let left = this.msUntilNextTimer(); left !== null && this.nowMs + left <= end; left = this.msUntilNextTimer()) {
      this.nowMs += left;
      this.fireTimers();
    }
    this.nowMs = end;
  }

  msUntilNextTimer() {
    const handle = this.#callEntry("untilNextTimer");
    const left = this.#exports.qjs_get_float64(handle);
    this.#free(handle);
    return left < 0 ? null : left;
  }

  /** What the guest says of the first rejection that nobody has handled, or null. */
  unhandledFailure() {
    const [first] = this.rejections.values();
    return first ? JSON.parse(this.#text(this.#callEntry("describeFailure", first.reason))) : null;
  }

  /** The texts of the output so far; `json` items are parsed. */
  get said() {
    return this.outputs.map(({ kind, content }) => (kind === "json" ? JSON.parse(content) : content));
  }

  get value() {
    if (this.completed.length !== 1) throw new Error(`not completed: ${JSON.stringify(this.failed)}`);
    return JSON.parse(this.completed[0]);
  }

  /** Write a seed for `Math.random`, as the host does for every new cell. */
  seedRandom(address, seed) {
    new DataView(this.#bytes().buffer).setBigUint64(address, seed, true);
  }

  // Below the guest: for tests that look at the engine's own objects.

  /** The handle of what `source` evaluates to as a script. */
  evaluate(source, { file = "cell.js", line = 1 } = {}) {
    const code = Buffer.from(source);
    const addresses = [this.#newBytes(code), this.#newBytes(Buffer.from(file)), this.#exports.wasm_malloc(16)];
    const options = new DataView(this.#bytes().buffer, addresses[2], 16);
    [1, 0, addresses[1], line].forEach((field, index) => options.setInt32(4 * index, field, true));
    const context = this.#exports.qjs_get_context_ptr();
    const value = this.#exports.JS_Eval2(context, addresses[0], code.length, addresses[2]);
    for (const address of addresses) this.#exports.wasm_free(address);
    if (BigInt.asUintN(64, value) >> 32n === EXCEPTION_TAG) throw this.#pendingException();
    const slot = this.#exports.wasm_malloc(8);
    new DataView(this.#bytes().buffer).setBigInt64(slot, value, true);
    return slot;
  }

  /** The handle of what the function `callee` returns; all are handles. */
  call(callee, ...args) {
    return this.#call(callee, args);
  }

  isTrue(handle) {
    return Boolean(this.#exports.qjs_get_bool(handle));
  }

  entry(name) {
    return this.#image.facts.entries[name];
  }

  #callEntry(name, ...args) {
    const result = this.#call(this.entry(name), args);
    if (name !== "describeFailure") this.#free(...args);
    return result;
  }

  #call(callee, args) {
    const slots = this.#exports.wasm_malloc(4 * args.length || 4);
    new Uint32Array(this.#bytes().buffer, slots, args.length).set(args);
    const result = this.#exports.qjs_call(callee, this.#exports.qjs_get_undefined(), args.length, slots);
    this.#exports.wasm_free(slots);
    if (this.#exports.qjs_is_exception(result)) throw this.#pendingException();
    return result;
  }

  #drainJobs() {
    for (;;) {
      const ran = this.#exports.qjs_execute_pending_job();
      if (ran === 0) return;
      if (ran < 0) throw this.#pendingException();
    }
  }

  #pendingException() {
    const slot = this.#exports.wasm_malloc(4);
    new DataView(this.#bytes().buffer).setUint32(slot, this.#exports.qjs_get_exception(), true);
    const described = this.#exports.qjs_call(this.entry("describeFailure"), this.#exports.qjs_get_undefined(), 1, slot);
    if (this.#exports.qjs_is_exception(described)) return new Error("the guest could not describe an exception");
    return new GuestError(JSON.parse(this.#text(described)));
  }

  #newString(text) {
    const bytes = Buffer.from(text);
    const at = this.#newBytes(bytes);
    const handle = this.#exports.qjs_new_string(at, bytes.length);
    this.#exports.wasm_free(at);
    return handle;
  }

  /** The address of a copy of `bytes`, with a zero after them. */
  #newBytes(bytes) {
    const at = this.#exports.wasm_malloc(bytes.length + 1);
    if (at === 0) throw new Error("the guest has no memory left");
    this.#bytes().set(bytes, at);
    this.#bytes()[at + bytes.length] = 0;
    return at;
  }

  #text(handle) {
    const slot = this.#exports.wasm_malloc(4);
    const start = this.#exports.qjs_get_string_len(handle, slot);
    const size = new DataView(this.#bytes().buffer).getUint32(slot, true);
    // As strict as the host: what is not UTF-8 must not pass unseen.
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.#bytes().slice(start, start + size));
    this.#exports.qjs_free_cstring(start);
    this.#exports.wasm_free(slot);
    return text;
  }

  /** The same, or null for what is not UTF-8: half a surrogate pair. */
  #textOrNull(handle) {
    try {
      return this.#text(handle);
    } catch {
      return null;
    }
  }

  #free(...handles) {
    for (const handle of handles) this.#exports.qjs_free_value(handle);
  }

  #bytes() {
    return new Uint8Array(this.#exports.memory.buffer);
  }

  #hostFunctions = {
    completed: (json) => void this.completed.push(this.#text(json)),
    failed: (json) => void this.failed.push(JSON.parse(this.#text(json))),
    output: (kind, content) => void this.outputs.push({ kind: this.#text(kind), content: this.#text(content) }),
    timers: () => {},
    pause: (id, reason) => void this.pauses.push({ id: this.#exports.qjs_get_float64(id), reason: this.#text(reason) }),
    request: (text) => this.#takeRequest(this.#text(text)),
    shared: (...names) => {
      const key = names.map((name) => this.#textOrNull(name));
      this.lookups.push(key);
      const json = key.includes(null) ? undefined : this.#lookUp(...key);
      return json === undefined ? undefined : this.#newString(json);
    },
    random: (size) => {
      const length = this.#exports.qjs_get_float64(size);
      return this.#exports.qjs_new_uint8_array(this.#newBytes(new Uint8Array(length).fill(0xab)), length);
    },
  };

  #takeRequest(text) {
    const [id, method, input] = text.split("\n").map((line) => JSON.parse(line));
    this.requests.push({ id, method, input });
  }

  #lookUp(part, key) {
    const found = this.#shared?.[part];
    if (key === undefined) return typeof found === "string" ? found : JSON.stringify(found);
    return Object.hasOwn(found ?? {}, key) ? JSON.stringify(found[key]) : undefined;
  }

  #imports() {
    const refuse = (name) => () => {
      throw new Error(`the engine called ${name}`);
    };
    return {
      env: {
        host_call: (name, size, _this, count, slots) => {
          const method = Buffer.from(this.#bytes().slice(name, name + size)).toString();
          const args = new Uint32Array(this.#bytes().slice(slots, slots + 4 * count).buffer);
          return this.#hostFunctions[method](...args) ?? this.#exports.qjs_get_undefined();
        },
        host_request: (text, size) => {
          this.directRequests++;
          this.#takeRequest(Buffer.from(this.#bytes().slice(text, text + size)).toString());
        },
        host_interrupt: () => {
          this.interrupts++;
          return 0;
        },
        host_promise_rejection: (promise, reason, isHandled) => {
          const address = this.#exports.qjs_get_value_ptr(promise);
          if (!isHandled) this.rejections.set(address, { promise, reason });
          else this.rejections.delete(address);
        },
        host_module_normalize: () => this.#refuseModule(),
        host_module_load: () => this.#refuseModule(),
        host_get_timezone_offset: () => 0,
      },
      wasi_snapshot_preview1: {
        clock_time_get: (_clock, _precision, at) => {
          new DataView(this.#bytes().buffer).setBigUint64(at, BigInt(Math.round(this.nowMs * 1000)) * 1000n, true);
          return 0;
        },
        random_get: refuse("random_get"),
        fd_close: refuse("fd_close"),
        fd_fdstat_get: refuse("fd_fdstat_get"),
        fd_seek: refuse("fd_seek"),
        fd_write: refuse("fd_write"),
      },
    };
  }

  #refuseModule() {
    this.#exports.qjs_throw(this.#callEntry("moduleError", this.#newString("a program cannot import anything")));
    return 0;
  }
}
