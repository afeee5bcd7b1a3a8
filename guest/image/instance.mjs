/**
 * A QuickJS instance in Node, to build an image. Its clock and random source are fixed, so that the same inputs give
 * the same bytes.
 */
const BUILD_TIME_NS = 1_700_000_000_000_000_000n;
const RANDOM_BYTE = 0x5a;
// Half of the stack of the module. The other half is for native frames and for handling a stack overflow.
const MAX_STACK_BYTES = 512 * 1024;
const STRIP_SOURCE = 1 << 4;

/** The exports of the engine that are used only here. */
export const BUILD_EXPORTS = [
  "__stack_pointer",
  "_initialize",
  "qjs_compile",
  "qjs_eval_bytecode",
  "qjs_get_global",
  "qjs_get_prop_string",
  "qjs_get_string",
  "qjs_init",
  "qjs_new_host_function",
  "qjs_new_object",
  "qjs_run_gc",
  "qjs_set_interrupt_handler",
  "qjs_set_max_stack_size",
  "qjs_set_module_loader",
  "qjs_set_promise_rejection_handler",
];

export class BuildInstance {
  constructor(module) {
    this.exports = new WebAssembly.Instance(module, this.#imports()).exports;
    this.exports._initialize();
    if (this.exports.qjs_init() !== 0) throw new Error("QuickJS did not start");
  }

  /** Compile to bytecode without sources, which would be a third of the image. */
  compile(source, name) {
    const { exports } = this;
    const [code, length] = this.#text(source);
    const [file] = this.#text(name);
    const lengthSlot = exports.wasm_malloc(4);
    const bytecode = exports.qjs_compile(code, length, file, 0, STRIP_SOURCE, lengthSlot);
    if (bytecode === 0) throw new Error(`${name} does not compile: ${this.#exception()}`);
    const size = new DataView(exports.memory.buffer).getUint32(lengthSlot, true);
    return new Uint8Array(exports.memory.buffer.slice(bytecode, bytecode + size));
  }

  /** Run bytecode and return the handle of its completion value. */
  run(bytecode) {
    const at = this.exports.wasm_malloc(bytecode.length);
    new Uint8Array(this.exports.memory.buffer).set(bytecode, at);
    const result = this.#checked(this.exports.qjs_eval_bytecode(at, bytecode.length));
    this.exports.wasm_free(at);
    return result;
  }

  call(callee, args) {
    const slots = this.exports.wasm_malloc(4 * args.length || 4);
    new Uint32Array(this.exports.memory.buffer, slots, args.length).set(args);
    const result = this.#checked(this.exports.qjs_call(callee, this.exports.qjs_get_undefined(), args.length, slots));
    this.exports.wasm_free(slots);
    return result;
  }

  property(object, name) {
    const [key] = this.#text(name);
    const value = this.#checked(this.exports.qjs_get_prop_string(object, key));
    this.exports.wasm_free(key);
    return value;
  }

  /** Create an object whose properties are host functions with the given names. */
  hostObject(names) {
    const { exports } = this;
    const object = exports.qjs_new_object();
    for (const name of names) {
      const [text, length] = this.#text(name);
      exports.qjs_set_prop_string(object, text, exports.qjs_new_host_function(text, length, 0));
    }
    return object;
  }

  /** Apply the engine settings of all cells, which a program cannot change. */
  finish() {
    const { exports } = this;
    exports.qjs_set_interrupt_handler(1);
    exports.qjs_set_promise_rejection_handler(1);
    exports.qjs_set_module_loader(1);
    exports.qjs_set_max_stack_size(MAX_STACK_BYTES);
    exports.qjs_run_gc();
  }

  /** Return the size of the JavaScript heap. The limit of a cell is added to it. */
  heapBytes() {
    const usage = this.exports.wasm_malloc(512);
    this.exports.qjs_compute_memory_usage(usage);
    const bytes = Number(new DataView(this.exports.memory.buffer).getBigInt64(usage, true));
    this.exports.wasm_free(usage);
    return bytes;
  }

  memory() {
    return new Uint8Array(this.exports.memory.buffer.slice(0));
  }

  #checked(handle) {
    if (this.exports.qjs_is_exception(handle)) throw new Error(this.#exception());
    return handle;
  }

  #exception() {
    const error = this.exports.qjs_get_exception();
    return `${this.#show(error)}\n${this.#show(this.property(error, "stack"))}`;
  }

  #show(handle) {
    const start = this.exports.qjs_get_string(handle);
    const bytes = Buffer.from(this.exports.memory.buffer);
    return bytes.subarray(start, bytes.indexOf(0, start)).toString();
  }

  #text(text) {
    const bytes = Buffer.from(text);
    const at = this.exports.wasm_malloc(bytes.length + 1);
    const memory = new Uint8Array(this.exports.memory.buffer);
    memory.set(bytes, at);
    memory[at + bytes.length] = 0;
    return [at, bytes.length];
  }

  #imports() {
    const memory = () => this.exports.memory.buffer;
    const refuse = (name) => () => {
      throw new Error(`${name} was called while the image was built`);
    };
    return {
      env: {
        host_call: refuse("a host function"),
        host_request: refuse("a request"),
        host_interrupt: () => 0,
        host_promise_rejection: refuse("the promise rejection tracker"),
        host_module_normalize: refuse("the module loader"),
        host_module_load: refuse("the module loader"),
        host_get_timezone_offset: () => 0,
      },
      wasi_snapshot_preview1: {
        clock_time_get: (_clock, _precision, at) => {
          new DataView(memory()).setBigUint64(at, BUILD_TIME_NS, true);
          return 0;
        },
        random_get: (at, length) => {
          new Uint8Array(memory(), at, length).fill(RANDOM_BYTE);
          return 0;
        },
        fd_close: refuse("fd_close"),
        fd_fdstat_get: refuse("fd_fdstat_get"),
        fd_seek: refuse("fd_seek"),
        fd_write: refuse("fd_write"),
      },
    };
  }
}
