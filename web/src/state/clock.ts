/** The time of the gateway, whose clock may differ from that of this machine. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

let offset: number | undefined;

/** Note the time of an event that has just arrived. */
export function noteServerTime(seconds: number): void {
  const found = seconds - Date.now() / 1000;
  // The largest one belongs to the event that was on its way for the shortest time.
  if (offset === undefined || found > offset) offset = found;
}

/** Return the time of the gateway in seconds since 1970. */
function serverNow(): number {
  return Date.now() / 1000 + (offset ?? 0);
}

const ticks = signal(0);
let readers = 0;
let timer = 0;
const TICK_MS = 250;

/** Return the time of the gateway, again and again while `isRunning`. */
export function useServerNow(isRunning: boolean): number {
  useEffect(() => {
    if (!isRunning) return;
    readers += 1;
    if (readers === 1) timer = window.setInterval(() => (ticks.value += 1), TICK_MS);
    return () => {
      readers -= 1;
      if (readers === 0) clearInterval(timer);
    };
  }, [isRunning]);
  if (isRunning) void ticks.value;
  return serverNow();
}
