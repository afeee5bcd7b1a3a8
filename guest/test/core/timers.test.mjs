/** Timers under a clock that the tests move. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { GuestError, startCell, valueOf } from "./cell.mjs";

const MAX_TIMERS = 10_000;

test("timers run by due time, and those of one due time in the order of their creation", () => {
  const cell = startCell(`
    for (const [name, delay] of [["c", 20], ["a", 10], ["d", 20], ["b", 10], ["e", 30], ["first", 0], ["second", undefined]]) {
      setTimeout(() => text(name), delay);
    }`);
  assert.deepEqual(cell.said, []);
  cell.advance(30);
  assert.deepEqual(cell.said, ["first", "second", "a", "b", "c", "d", "e"]);
});

test("any mix of delays and cancellations runs in the order of due time and creation", () => {
  const cell = startCell(`
    const ids = [];
    let state = 7;
    for (let index = 0; index < 300; index++) {
      state = (state * 1103515245 + 12345) % 2147483648;
      const delay = state % 17;
      ids.push(setTimeout(() => text(delay + ":" + index), delay));
      if (state % 5 === 0) clearTimeout(ids[state % ids.length]);
    }`);
  cell.advance(20);
  const ran = cell.said.map((line) => line.split(":").map(Number));
  const sorted = ran.toSorted(([delayA, indexA], [delayB, indexB]) => delayA - delayB || indexA - indexB);
  assert.ok(ran.length > 200 && ran.length < 300, `${ran.length} timers ran`);
  assert.deepEqual(ran, sorted);
  assert.equal(cell.msUntilNextTimer(), null);
});

test("a timer does not run before its time", () => {
  const cell = startCell("setTimeout(() => text('now'), 10)");
  cell.advance(9);
  assert.equal(cell.fireTimers(), 0);
  assert.deepEqual(cell.said, []);
  assert.equal(cell.msUntilNextTimer(), 1);
  cell.advance(1);
  assert.deepEqual(cell.said, ["now"]);
});

test("the host learns how long until the next timer, zero when it is late, nothing without one", () => {
  const cell = startCell("setTimeout(() => {}, 50); globalThis.soon = setTimeout(() => {}, 20)");
  assert.equal(cell.msUntilNextTimer(), 20);
  cell.nowMs += 35;
  assert.equal(cell.msUntilNextTimer(), 0);
  cell.fireTimers();
  assert.equal(cell.msUntilNextTimer(), 15);
  cell.advance(15);
  assert.equal(cell.msUntilNextTimer(), null);
});

test("a cell without timers has none to fire", () => {
  const cell = startCell("return 1");
  assert.equal(cell.msUntilNextTimer(), null);
  assert.equal(cell.fireTimers(), 0);
});

test("a cleared timer does not run, whichever function clears it", () => {
  const cell = startCell(`
    const ids = [setTimeout(text, 1, "a"), setTimeout(text, 1, "b"), setInterval(text, 1, "c"), setInterval(text, 1, "d")];
    setTimeout(text, 1, "kept");
    clearTimeout(ids[0]);
    clearInterval(ids[1]);
    clearTimeout(ids[2]);
    clearInterval(String(ids[3]));`);
  cell.advance(5);
  assert.deepEqual(cell.said, ["kept"]);
});

test("clearing what is no timer does nothing", () => {
  const program = "for (const id of [undefined, null, 0, -1, 99, NaN, 'x', '__proto__', {}, 1n]) { clearTimeout(id); clearInterval(id) } clearTimeout(); return 1";
  assert.equal(valueOf(program), 1);
});

test("a timer can clear another one that is due at the same time", () => {
  const cell = startCell("setTimeout(() => { text('a'); clearTimeout(b) }, 1); const b = setTimeout(text, 1, 'b'); setTimeout(text, 1, 'c')");
  cell.advance(1);
  assert.deepEqual(cell.said, ["a", "c"]);
});

test("clearing a timer twice, or after it ran, leaves the others alone", () => {
  const cell = startCell(`
    const a = setTimeout(text, 1, "a"), b = setTimeout(text, 2, "b");
    setTimeout(text, 3, "c");
    clearTimeout(b);
    clearTimeout(b);
    setTimeout(() => clearTimeout(a), 2);`);
  cell.advance(3);
  assert.deepEqual(cell.said, ["a", "c"]);
});

test("timer ids are distinct positive numbers", () => {
  const ids = valueOf("return [setTimeout(() => {}), setInterval(() => {}), setTimeout(() => {})]");
  assert.equal(new Set(ids).size, 3);
  assert.ok(ids.every((id) => Number.isInteger(id) && id > 0));
});

test("an interval runs again and again until it is cleared, also by itself", () => {
  const cell = startCell(`
    let n = 0;
    const id = setInterval(() => {
      text("tick " + ++n);
      if (n === 3) clearInterval(id);
    }, 10);`);
  cell.advance(9);
  assert.deepEqual(cell.said, []);
  cell.advance(100);
  assert.deepEqual(cell.said, ["tick 1", "tick 2", "tick 3"]);
  assert.equal(cell.msUntilNextTimer(), null);
});

test("an interval that is late runs once, not once for each turn it missed", () => {
  const cell = startCell("setInterval(() => text('tick'), 10)");
  cell.nowMs += 1000;
  assert.equal(cell.fireTimers(), 1);
  assert.equal(cell.msUntilNextTimer(), 10);
});

test("an interval without a delay does not run forever at one instant", () => {
  const cell = startCell("setInterval(() => text('tick'), 0)");
  cell.advance(3);
  assert.equal(cell.said.length, 3);
});

test("an interval and timers of the same due time take turns", () => {
  const cell = startCell("setInterval(text, 10, 'interval'); setTimeout(text, 10, 'ten'); setTimeout(text, 20, 'twenty')");
  cell.advance(20);
  assert.deepEqual(cell.said, ["interval", "ten", "twenty", "interval"]);
});

test("arguments after the delay go to the callback", () => {
  const cell = startCell("setTimeout((...args) => json(args), 1, 'a', undefined, { b: 1 }); setInterval(function () { json([arguments.length]) }, 1)");
  cell.advance(1);
  assert.deepEqual(cell.said, [["a", null, { b: 1 }], [0]]);
});

test("strange delays count as none, too long ones as the longest", () => {
  const cell = startCell("for (const delay of [-5, NaN, 'x', null, {}, '7', 0.5, Infinity, 1e15]) setTimeout(() => json([String(delay)]), delay)");
  cell.fireTimers();
  assert.deepEqual(cell.said.map(([delay]) => delay), ["-5", "NaN", "x", "null", "[object Object]"]);
  cell.advance(7);
  assert.deepEqual(cell.said.slice(5), [["0.5"], ["7"]]);
  assert.equal(cell.msUntilNextTimer(), 2_147_483_647 - 7);
});

test("timers that timers set run in their turn", () => {
  const cell = startCell(`
    setTimeout(() => {
      text("outer");
      setTimeout(text, 0, "inner at once");
      setTimeout(text, 10, "inner later");
    }, 10);
    setTimeout(text, 10, "sibling");
    setTimeout(text, 15, "between");`);
  cell.advance(20);
  assert.deepEqual(cell.said, ["outer", "sibling", "inner at once", "between", "inner later"]);
});

test("promise jobs of one timer run before the next timer", () => {
  const cell = startCell(`
    setTimeout(() => {
      text("one");
      Promise.resolve().then(() => text("one's job")).then(() => text("its follower"));
      queueMicrotask(() => text("microtask"));
    }, 1);
    setTimeout(text, 1, "two");`);
  cell.advance(1);
  assert.deepEqual(cell.said, ["one", "one's job", "microtask", "its follower", "two"]);
});

test("a program can await a timer", () => {
  const cell = startCell("const before = Date.now(); await new Promise((done) => setTimeout(done, 250)); return Date.now() - before");
  cell.advance(250);
  assert.equal(cell.value, 250);
});

test("an exception in a timer is told to the host with its line, and the other timers live on", () => {
  const cell = startCell("setTimeout(() => {\n  throw new Error('boom');\n}, 1);\nsetTimeout(text, 2, 'next')");
  assert.throws(
    () => cell.advance(5),
    (error) => error instanceof GuestError && error.failure.message === "Error: boom" && error.failure.stack.includes("cell.js:2:"),
  );
  cell.advance(5);
  assert.deepEqual(cell.said, ["next"]);
  assert.equal(cell.msUntilNextTimer(), null);
});

test("an interval whose callback throws stays set", () => {
  const cell = startCell("let n = 0; setInterval(() => { if (++n === 1) throw new Error('once'); text(n) }, 10)");
  assert.throws(() => cell.advance(10), GuestError);
  cell.advance(10);
  assert.deepEqual(cell.said, ["2"]);
});

test("a timer without a function is refused at once", () => {
  const program = `
    const refusals = [];
    for (const callback of [undefined, null, "text(1)", {}]) {
      for (const set of [setTimeout, setInterval]) try { set(callback, 1) } catch (error) { refusals.push(error.name) }
    }
    return refusals`;
  const cell = startCell(program);
  assert.deepEqual(cell.value, Array(8).fill("TypeError"));
  assert.equal(cell.msUntilNextTimer(), null);
});

test("no more timers than the limit can wait, and one that ran or was cleared makes room", () => {
  const cell = startCell(`
    const ids = [];
    for (let index = 0; index < ${MAX_TIMERS}; index++) ids.push(setTimeout(() => {}, 5));
    const attempt = () => { try { setTimeout(() => {}, 10); return "set" } catch (error) { return error.name + ": " + error.message } };
    text(attempt());
    clearTimeout(ids[0]);
    text(attempt());
    text(attempt());
    setTimeout.call(null, () => {}, 0);`);
  assert.equal(cell.failed[0].message, `RangeError: more than ${MAX_TIMERS} timers at once`);
  assert.deepEqual(cell.said, [
    `RangeError: more than ${MAX_TIMERS} timers at once`,
    "set",
    `RangeError: more than ${MAX_TIMERS} timers at once`,
  ]);
  cell.advance(5);
  assert.equal(cell.msUntilNextTimer(), 5);
});

test("timers survive a copy of the memory and fire late rather than never", () => {
  const cell = startCell("let n = 0; setTimeout(() => text('timeout ' + ++n), 1000); setInterval(() => text('interval ' + ++n), 400)");
  cell.advance(400);
  const copy = cell.copy({ nowMs: cell.nowMs + 3_600_000 });
  assert.equal(copy.msUntilNextTimer(), 0);
  assert.equal(copy.fireTimers(), 2);
  assert.deepEqual(copy.said, ["interval 2", "timeout 3"]);
  assert.equal(copy.msUntilNextTimer(), 400);
  assert.equal(cell.msUntilNextTimer(), 400);
  assert.deepEqual(cell.said, ["interval 1"]);
});

test("a timer can be cleared after a copy of the memory by the id from before", () => {
  const cell = startCell("const id = setTimeout(text, 100, 'never'); await call(); clearTimeout(id); return id", { functions: ["call"] });
  const copy = cell.copy();
  copy.deliver([1, true, null]);
  copy.advance(1000);
  assert.deepEqual(copy.said, []);
  cell.advance(1000);
  assert.deepEqual(cell.said, ["never"]);
});
