/**
 * Optimizes the module of the engine for wasmtime, which compiles it as it is. Its loop calls small functions, so they
 * are inlined. Three changes that no general optimizer can make come first, see `specializeEngine`, and functions that do in
 * one call what the host would do in many, see `addDeliver`.
 */
import binaryen from "binaryen";

/** The exports that are added to the engine. */
export const ADDED_EXPORTS = ["nacre_deliver"];

// Sizes of functions, in nodes of Binaryen. With more, the engine is larger and not faster.
const MAX_INLINED_ALWAYS = 40;
const MAX_INLINED_WITHOUT_CALLS = 300;
const MAX_INLINED_WITH_ONE_CALLER = 100;

// The loop has one jump with a target for each instruction. All other jumps have fewer than 100 targets.
const MIN_INSTRUCTIONS = 200;
const OPCODES = 256;
// JS_DUMP_BYTECODE_STEP, in the first byte of the debugging flags.
const STEP_FLAG = 0x80;

// The upper half of a thrown value.
const EXCEPTION_TAG = 6;
const STACK_ALIGNMENT = 16;
/** The name of the host function for requests, see `GUEST`. */
const REQUEST = Buffer.from("request");

/** Return the optimized module. It has only the given exports. */
export function optimizeEngine(wasm, exports) {
  const module = specializeEngine(wasm);
  const kept = [...exports, ...ADDED_EXPORTS];
  for (const name of exportNames(module)) if (!kept.includes(name)) module.removeExport(name);
  binaryen.setOptimizeLevel(2);
  binaryen.setShrinkLevel(0);
  binaryen.setAlwaysInlineMaxSize(MAX_INLINED_ALWAYS);
  binaryen.setFlexibleInlineMaxSize(MAX_INLINED_WITHOUT_CALLS);
  binaryen.setOneCallerInlineMaxSize(MAX_INLINED_WITH_ONE_CALLER);
  module.optimize();
  return module.emitBinary();
}

/** Return a module of Binaryen with the changes that need knowledge of QuickJS. Throws for an unknown engine. */
export function specializeEngine(wasm) {
  const module = binaryen.readBinary(wasm);
  const { loop, jump } = findLoop(module);
  jumpByOpcode(module, jump);
  removeStepDumps(module, loop);
  splitFreeValue(module);
  addDeliver(module);
  addRequest(module);
  return module;
}

function findLoop(module) {
  const found = [];
  for (let index = 0; index < module.getNumFunctions(); index++) {
    const loop = binaryen.getFunctionInfo(module.getFunctionByIndex(index)).body;
    for (const jump of expressions(loop, binaryen.SwitchId)) {
      if (binaryen.Switch.getNumNames(jump) >= MIN_INSTRUCTIONS) found.push({ loop, jump });
    }
  }
  return onlyOne(found, "loops of an interpreter");
}

/**
 * The loop loads the number of a target from a table in memory and jumps by this number. Let it jump by the opcode: the
 * table of the jump then does the work of both.
 */
function jumpByOpcode(module, jump) {
  const number = describe(binaryen.Switch.getCondition(jump));
  const load = describe(number.left);
  const address = describe(load.ptr);
  const isKnown = isOperation(number, binaryen.SubInt32) && load.bytes === 4 && isOperation(address, binaryen.ShlInt32, 2);
  if (!isKnown) throw new Error("the engine finds the code of an instruction in an unknown way");
  const first = describe(number.right).value;
  const table = new DataView(dataAt(module, load.offset), 0, 4 * OPCODES);
  const { names, defaultName } = describe(jump);
  const targets = Array.from({ length: OPCODES }, (_, opcode) => names[table.getUint32(4 * opcode, true) - first]);
  binaryen.Switch.setNames(
    jump,
    targets.map((name) => name ?? defaultName),
  );
  binaryen.Switch.setCondition(jump, address.left);
}

function dataAt(module, offset) {
  for (let index = 0; index < module.getNumDataSegments(); index++) {
    const segment = module.getDataSegmentInfo(module.getDataSegmentByIndex(index));
    if (segment.offset === offset) return segment.data;
  }
  throw new Error(`the engine has no data at ${offset}`);
}

/** Each instruction tests whether to print the bytecode, through two loads. No image has a function that sets this. */
function removeStepDumps(module, loop) {
  const setter = binaryen.getFunctionInfo(exportedFunction(module, "JS_SetDumpFlags")).body;
  const stores = [...expressions(setter, binaryen.StoreId)].map(describe);
  const flags = onlyOne(
    stores.filter(({ bytes }) => bytes === 2),
    "stores of debugging flags",
  );
  let count = 0;
  for (const choice of expressions(loop, binaryen.IfId)) {
    const test = describe(binaryen.If.getCondition(choice));
    if (!isOperation(test, binaryen.AndInt32, STEP_FLAG)) continue;
    const load = describe(test.left);
    if (load.id !== binaryen.LoadId || load.bytes !== 1 || load.offset !== flags.offset) continue;
    // The address may be an assignment, which stays. Binaryen would also keep the load of the runtime, as it could trap.
    const runtime = describe(load.ptr);
    const used = runtime.id === binaryen.LoadId ? runtime.ptr : load.ptr;
    binaryen.If.setCondition(choice, module.block(null, [module.drop(used), module.i32.const(0)], binaryen.i32));
    count++;
  }
  if (count < MIN_INSTRUCTIONS) throw new Error(`expected a dump for each instruction, found ${count}`);
}

/**
 * `JS_FreeValueRT` gets a stack frame before it looks at the value. Move it to another function, and leave a small one,
 * which is inlined, for values without a reference count and for those that have other references.
 */
function splitFreeValue(module) {
  const free = exportedFunction(module, "JS_FreeValueRT");
  const { params, results, vars, body } = binaryen.getFunctionInfo(free);
  const tests = [...expressions(body, binaryen.BinaryId)].map(describe);
  const isCounted = onlyOne(
    tests.filter(({ op }) => op === binaryen.LtUInt64),
    "tests for a reference count",
  );
  const { i32, i64 } = module;
  const [runtime, value] = [() => module.local.get(0, binaryen.i32), () => module.local.get(1, binaryen.i64)];
  const countAt = () => i32.sub(i32.wrap(value()), i32.const(4));
  const count = () => i32.load(0, 4, countAt());
  module.addFunction("free_last", params, results, vars, module.copyExpression(body));
  binaryen.Function.setBody(
    free,
    module.if(
      i64.ge_u(value(), module.copyExpression(isCounted.right)),
      module.if(
        i32.gt_s(count(), i32.const(1)),
        i32.store(0, 4, countAt(), i32.sub(count(), i32.const(1))),
        module.call("free_last", [runtime(), value()], binaryen.none),
      ),
    ),
  );
}

/**
 * Export a function that passes a text to an entry of the guest and runs its promise jobs: `nacre_deliver(entry,
 * undefined, text, size, slot)`. It returns 0, 1 if the engine threw an error, or 2 if there is no memory for the text.
 */
function addDeliver(module) {
  const { i32 } = module;
  const [entry, thisValue, text, size, slot, argument, found] = localsOf(module, 7);
  const call = (name, values, result = binaryen.i32) => module.call(exportedName(module, name), values, result);
  const isException = (handle) => i32.eq(i32.load(4, 4, handle), i32.const(EXCEPTION_TAG));
  const body = [
    module.local.set(5, call("qjs_new_string", [text(), size()])),
    module.if(i32.eqz(argument()), module.return(i32.const(2))),
    module.if(isException(argument()), module.return(i32.const(2))),
    i32.store(0, 4, slot(), argument()),
    module.local.set(6, call("qjs_call", [entry(), thisValue(), i32.const(1), slot()])),
    module.if(isException(found()), module.return(i32.const(1))),
    call("qjs_free_value", [found()], binaryen.none),
    call("qjs_free_value", [argument()], binaryen.none),
    module.loop(
      "jobs",
      module.block(null, [
        module.local.set(6, call("qjs_execute_pending_job", [])),
        module.br("jobs", i32.gt_s(found(), i32.const(0))),
      ]),
    ),
    i32.lt_s(found(), i32.const(0)),
  ];
  const locals = [binaryen.i32, binaryen.i32];
  module.addFunction("nacre_deliver", fiveNumbers(), binaryen.i32, locals, module.block(null, body, binaryen.i32));
  module.addFunctionExport("nacre_deliver", "nacre_deliver");
}

/**
 * Let the host function `request` call the import `host_request(text, size)` with its text. With a handle of it, the
 * host would call the engine three times for each request.
 */
function addRequest(module) {
  const { i32 } = module;
  const imported = importedName(module, "host_call");
  const calls = [];
  for (let index = 0; index < module.getNumFunctions(); index++) {
    const { body } = binaryen.getFunctionInfo(module.getFunctionByIndex(index));
    for (const call of expressions(body, binaryen.CallId)) if (binaryen.Call.getTarget(call) === imported) calls.push(call);
  }
  binaryen.Call.setTarget(onlyOne(calls, "calls of host functions"), "host_call_or_request");
  const [name, nameSize, thisValue, count, slots, text] = localsOf(module, 6);
  const call = (callee, values, result = binaryen.i32) => module.call(exportedName(module, callee), values, result);
  const stackPointer = binaryen.getExportInfo(module.getExport("__stack_pointer")).value;
  const stack = () => module.global.get(stackPointer, binaryen.i32);
  const moveStack = (bytes) => module.global.set(stackPointer, i32.add(stack(), i32.const(bytes)));
  const isRequest = [
    i32.eq(nameSize(), i32.const(REQUEST.length)),
    ...[0, REQUEST.length - 4].map((at) => i32.eq(i32.load(at, 1, name()), i32.const(REQUEST.readInt32LE(at)))),
  ];
  module.addFunctionImport("host_request", "env", "host_request", binaryen.createType([binaryen.i32, binaryen.i32]), binaryen.none);
  const send = module.block(null, [
    moveStack(-STACK_ALIGNMENT),
    module.local.set(5, call("qjs_get_string_len", [i32.load(0, 4, slots()), stack()])),
    module.if(text(), module.call("host_request", [text(), i32.load(0, 4, stack())], binaryen.none)),
    moveStack(STACK_ALIGNMENT),
    // If there is no memory for the text, `host_call` reports it.
    module.if(
      text(),
      module.block(null, [call("qjs_free_cstring", [text()], binaryen.none), module.return(call("qjs_get_undefined", []))]),
    ),
  ]);
  const nested = isRequest.reduceRight((inner, test) => module.if(test, inner), send);
  const other = module.call(imported, [name(), nameSize(), thisValue(), count(), slots()], binaryen.i32);
  const body = module.block(null, [nested, other], binaryen.i32);
  module.addFunction("host_call_or_request", fiveNumbers(), binaryen.i32, [binaryen.i32], body);
}

function localsOf(module, count) {
  return Array.from({ length: count }, (_, index) => () => module.local.get(index, binaryen.i32));
}

function fiveNumbers() {
  return binaryen.createType(Array(5).fill(binaryen.i32));
}

function importedName(module, base) {
  const functions = Array.from({ length: module.getNumFunctions() }, (_, index) =>
    binaryen.getFunctionInfo(module.getFunctionByIndex(index)),
  );
  return onlyOne(
    functions.filter((each) => each.base === base),
    `imports of ${base}`,
  ).name;
}

function exportedName(module, name) {
  return binaryen.getFunctionInfo(exportedFunction(module, name)).name;
}

function exportNames(module) {
  return Array.from({ length: module.getNumExports() }, (_, index) => module.getExportByIndex(index)).map(
    (entry) => binaryen.getExportInfo(entry).name,
  );
}

function exportedFunction(module, name) {
  const entry = module.getExport(name);
  if (!entry) throw new Error(`the engine does not export ${name}`);
  return module.getFunction(binaryen.getExportInfo(entry).value);
}

/** Return the fields of an expression, or an empty object for none and for those that Binaryen does not describe. */
function describe(expression) {
  const isDescribed = expression && !UNDESCRIBED.includes(binaryen.getExpressionId(expression));
  return isDescribed ? binaryen.getExpressionInfo(expression) : {};
}

function isOperation({ id, op, right }, wanted, operand) {
  if (id !== binaryen.BinaryId || op !== wanted) return false;
  const { id: rightId, value } = describe(right);
  return rightId === binaryen.ConstId && (operand === undefined || value === operand);
}

function onlyOne(found, what) {
  if (found.length !== 1) throw new Error(`expected one in the engine, but found ${found.length} ${what}`);
  return found[0];
}

const CHILD_FIELDS = [
  ...["children", "operands", "condition", "ifTrue", "ifFalse", "body", "value", "ptr", "left", "right"],
  ...["target", "delta", "dest", "source", "size"],
];
const UNDESCRIBED = [binaryen.NopId, binaryen.UnreachableId, binaryen.MemorySizeId];
// The value of a constant is a number, but no expression.
const LEAVES = [...UNDESCRIBED, binaryen.ConstId, binaryen.LocalGetId];

/** Yield the expressions of a kind in an expression, which may be 0 for none. */
function* expressions(expression, wanted) {
  if (!expression) return;
  const id = binaryen.getExpressionId(expression);
  if (id === wanted) yield expression;
  if (LEAVES.includes(id)) return;
  const fields = describe(expression);
  for (const field of CHILD_FIELDS) {
    for (const child of [fields[field]].flat()) if (typeof child === "number") yield* expressions(child, wanted);
  }
}
