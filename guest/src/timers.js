/**
 * Timers. The guest stores them; the host calls it when one is due.
 *
 * Due times are milliseconds of the host's monotonic clock, which all workers share: a timer still fires after a snapshot
 * is restored, and a changed wall clock does not delay it.
 */
import { define } from "./globals.js";
import { monotonicTimeMs, Number, RangeError, reflectApply, TypeError } from "./intrinsics.js";
import { argumentsFrom } from "./members.js";

const MAX_TIMERS = 10_000;
const MAX_DELAY_MS = 2_147_483_647;

/** Define the timer functions on `global`, and return the entry points of the host. `announce` reports a first timer. */
export function installTimers(global, announce) {
  const timers = { __proto__: null };
  // The same timers as a linked list, sorted by due time and then by the order in which they were added.
  const line = { __proto__: null, first: undefined, last: undefined };
  let count = 0;
  let lastId = 0;

  function add(callback, delay, args, repeatEveryMs) {
    if (typeof callback !== "function") throw new TypeError("a timer needs a function to call");
    if (count >= MAX_TIMERS) throw new RangeError("more than " + MAX_TIMERS + " timers at once");
    const id = ++lastId;
    timers[id] = { __proto__: null, id, callback, args, due: 0, repeatEveryMs, previous: undefined, next: undefined };
    queue(timers[id], delay);
    if (count === 0) announce();
    count++;
    return id;
  }

  function remove(id) {
    const key = Number(id);
    if (timers[key] === undefined) return;
    unqueue(timers[key]);
    delete timers[key];
    count--;
  }

  define(global, "setTimeout", function (callback, delay) {
    return add(callback, delayMs(delay), argumentsFrom(arguments, 2), undefined);
  });
  define(global, "setInterval", function (callback, delay) {
    const every = delayMs(delay) || 1;
    return add(callback, every, argumentsFrom(arguments, 2), every);
  });
  define(global, "clearTimeout", (id) => remove(id));
  define(global, "clearInterval", (id) => remove(id));

  function queue(timer, delay) {
    timer.due = monotonicTimeMs() + delay;
    // From the end, because most new timers are due after the existing ones.
    let previous = line.last;
    while (previous !== undefined && previous.due > timer.due) previous = previous.previous;
    link(timer, previous === undefined ? line.first : previous.next);
    link(previous, timer);
  }

  function unqueue(timer) {
    link(timer.previous, timer.next);
  }

  function link(previous, next) {
    if (previous === undefined) line.first = next;
    else previous.next = next;
    if (next === undefined) line.last = previous;
    else next.previous = previous;
  }

  return {
    __proto__: null,
    /** Return the milliseconds until the next timer is due, or -1 without timers. */
    untilNextTimer() {
      const next = line.first;
      if (next === undefined) return -1;
      const left = next.due - monotonicTimeMs();
      return left > 0 ? left : 0;
    },
    /** Run the earliest due timer. Only one per call, because the host runs promise jobs in between. */
    fireTimer() {
      const next = line.first;
      if (next === undefined || next.due > monotonicTimeMs()) return false;
      if (next.repeatEveryMs === undefined) remove(next.id);
      else {
        unqueue(next);
        queue(next, next.repeatEveryMs);
      }
      reflectApply(next.callback, undefined, next.args);
      return true;
    },
  };
}

function delayMs(delay) {
  const value = Number(delay);
  if (!(value > 0)) return 0;
  return value > MAX_DELAY_MS ? MAX_DELAY_MS : value;
}
