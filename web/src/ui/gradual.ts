/** Work that the page does little by little, so that it can always react. */
import { useEffect, useState } from "preact/hooks";

/** After this time, work is done although the page is busy. */
const MAX_IDLE_WAIT_MS = 1000;

const waiting: (() => void)[] = [];

/** Call `work` when the page has time; one such function each time. */
export function whenIdle(work: () => void): void {
  waiting.push(work);
  if (waiting.length === 1) requestIdle();
}

function requestIdle(): void {
  // Safari has no idle callbacks.
  if ("requestIdleCallback" in window) requestIdleCallback(workOnce, { timeout: MAX_IDLE_WAIT_MS });
  else setTimeout(workOnce, 50);
}

function workOnce(): void {
  try {
    waiting[0]?.();
  } finally {
    waiting.shift();
    if (waiting.length > 0) requestIdle();
  }
}

/** Return true once the page has time for more than what is needed at first. */
export function useIdle(): boolean {
  const [isIdle, setIdle] = useState(false);
  useEffect(() => {
    let isGone = false;
    whenIdle(() => {
      if (!isGone) setIdle(true);
    });
    return () => {
      isGone = true;
    };
  }, []);
  return isIdle;
}

/** Return how many of `count` things to draw: `step` of them, and as many more in each frame. `isHidden` starts again. */
export function useGradualCount(count: number, step: number, isHidden: boolean): number {
  const [drawn, setDrawn] = useState(step);
  const isBehind = drawn < count;
  useEffect(() => {
    if (isHidden) setDrawn(step);
  }, [isHidden]);
  useEffect(() => {
    if (!isBehind || isHidden) return;
    const frame = requestAnimationFrame(() => setDrawn(drawn + step));
    return () => cancelAnimationFrame(frame);
  }, [drawn, isBehind, isHidden]);
  return Math.min(drawn, count);
}
