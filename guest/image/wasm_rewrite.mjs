/**
 * Rewrites a WebAssembly module so that a new instance starts with a given linear memory and stack pointer: the memory
 * becomes the data section of the module. A runtime that maps data copy-on-write then creates an instance in
 * microseconds.
 */

const SECTION = { memory: 5, global: 6, export: 7, data: 11, dataCount: 12 };

// Shorter runs of zeros stay inside a segment, because a segment header needs bytes too.
const MIN_GAP_BYTES = 4096;

/** Return `wasm` with `memory` and `stackPointer` as its initial state, and only `exports` as exports. */
export function withInitialMemory(wasm, memory, stackPointer, exports) {
  const sections = readSections(wasm);
  const pages = memory.length / 65536;
  const parts = [wasm.subarray(0, 8)];
  for (const { id, body } of sections) {
    if (id === SECTION.dataCount) continue;
    if (id === SECTION.data) continue;
    if (id === SECTION.memory) parts.push(section(id, memorySection(body, pages)));
    else if (id === SECTION.export) parts.push(section(id, exportSection(body, exports)));
    else if (id === SECTION.global) parts.push(section(id, globalSection(body, stackPointer)));
    else parts.push(section(id, body));
  }
  // The data section must be the last one; custom sections were removed.
  parts.push(section(SECTION.data, dataSection(memory)));
  return concat(parts);
}

function readSections(wasm) {
  const sections = [];
  let at = 8;
  while (at < wasm.length) {
    const id = wasm[at];
    const [size, next] = readLeb(wasm, at + 1);
    const body = wasm.subarray(next, next + size);
    // Custom sections (names, producers) are not needed to run.
    if (id !== 0) sections.push({ id, body });
    at = next + size;
  }
  return sections;
}

function memorySection(body, pages) {
  const [count, afterCount] = readLeb(body, 0);
  if (count !== 1) throw new Error(`expected one memory, found ${count}`);
  const flags = body[afterCount];
  if (flags !== 0) throw new Error(`expected a memory without a maximum, found flags ${flags}`);
  return concat([leb(1), Uint8Array.of(0), leb(pages)]);
}

function exportSection(body, wanted) {
  const [count, start] = readLeb(body, 0);
  const kept = [];
  let at = start;
  for (let index = 0; index < count; index++) {
    const entry = at;
    const [length, nameStart] = readLeb(body, at);
    const name = new TextDecoder().decode(body.subarray(nameStart, nameStart + length));
    [, at] = readLeb(body, nameStart + length + 1);
    if (wanted.includes(name)) kept.push(body.subarray(entry, at));
  }
  if (kept.length !== wanted.length) throw new Error(`the engine lacks some of the exports ${wanted.join(", ")}`);
  return concat([leb(kept.length), ...kept]);
}

function globalSection(body, stackPointer) {
  const [count, start] = readLeb(body, 0);
  // The stack pointer is global 0 and the only mutable global. The linker fixes all others.
  const [type, mutable, opcode] = body.subarray(start, start + 3);
  if (type !== 0x7f || mutable !== 1 || opcode !== 0x41) {
    throw new Error("expected global 0 to be the mutable i32 stack pointer");
  }
  const [, afterValue] = readLeb(body, start + 3);
  const rest = body.subarray(afterValue);
  assertNoFurtherMutable(rest.subarray(1), count - 1);
  return concat([leb(count), Uint8Array.of(0x7f, 1, 0x41), signedLeb(stackPointer), rest]);
}

function assertNoFurtherMutable(bytes, count) {
  let at = 0;
  for (let index = 0; index < count; index++) {
    if (bytes[at + 1] !== 0) throw new Error(`global ${index + 1} is mutable: the image would lose it`);
    if (bytes[at + 2] !== 0x41) throw new Error(`global ${index + 1} is not an i32 constant`);
    const [, next] = readLeb(bytes, at + 3);
    at = next + 1;
  }
}

function dataSection(memory) {
  const segments = nonZeroRuns(memory);
  const parts = [leb(segments.length)];
  for (const [start, end] of segments) {
    parts.push(Uint8Array.of(0, 0x41), signedLeb(start), Uint8Array.of(0x0b));
    parts.push(leb(end - start), memory.subarray(start, end));
  }
  return concat(parts);
}

function nonZeroRuns(memory) {
  const runs = [];
  let start = -1;
  let lastNonZero = -1;
  for (let at = 0; at < memory.length; at++) {
    if (memory[at] === 0) continue;
    if (start < 0) start = at;
    else if (at - lastNonZero > MIN_GAP_BYTES) {
      runs.push([start, lastNonZero + 1]);
      start = at;
    }
    lastNonZero = at;
  }
  if (start >= 0) runs.push([start, lastNonZero + 1]);
  return runs;
}

function section(id, body) {
  return concat([Uint8Array.of(id), leb(body.length), body]);
}

function readLeb(bytes, at) {
  let value = 0;
  let shift = 0;
  for (;;) {
    const byte = bytes[at++];
    value += (byte & 0x7f) * 2 ** shift;
    shift += 7;
    if (byte < 0x80) return [value, at];
  }
}

function leb(value) {
  const bytes = [];
  do {
    const low = value & 0x7f;
    value = Math.floor(value / 128);
    bytes.push(value ? low | 0x80 : low);
  } while (value);
  return Uint8Array.from(bytes);
}

function signedLeb(value) {
  const bytes = [];
  for (;;) {
    const low = value & 0x7f;
    value >>= 7;
    const done = (value === 0 && !(low & 0x40)) || (value === -1 && low & 0x40);
    bytes.push(done ? low : low | 0x80);
    if (done) return Uint8Array.from(bytes);
  }
}

function concat(parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
