/** Turns far from what the reader sees leave the page, so that it stays small in a long session. */
import type { Signal } from "@preact/signals";

/** A turn stays in the page up to this distance from the window. */
const NEAR_PIXELS = 4000;

/** Whether a turn is only a gap in the page, and the height that it had when it was seen last. */
export interface TurnPlace {
  isFar: boolean;
  height: number;
}

/** Follows the turns of one transcript while it scrolls. */
export class NearbyTurns {
  readonly #places = new Map<Element, Signal<TurnPlace>>();
  readonly #returning = new Set<Element>();
  #observer: IntersectionObserver | undefined;
  #frame = 0;

  /** Watch a turn, and change its place; call the result when it is gone. */
  watch(element: Element, place: Signal<TurnPlace>): () => void {
    this.#observer ??= new IntersectionObserver((entries) => this.#update(entries), {
      root: element.closest(".chat-scroll"),
      rootMargin: `${NEAR_PIXELS}px 0px`,
    });
    this.#places.set(element, place);
    this.#observer.observe(element);
    return () => {
      this.#places.delete(element);
      this.#returning.delete(element);
      this.#observer?.unobserve(element);
    };
  }

  close(): void {
    cancelAnimationFrame(this.#frame);
    this.#observer?.disconnect();
  }

  #update(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const place = this.#places.get(target);
      if (place === undefined) continue;
      if (isIntersecting) {
        if (place.peek().isFar) this.#returning.add(target);
      } else {
        this.#returning.delete(target);
        if (canLeave(target)) place.value = { isFar: true, height: boundingClientRect.height };
      }
    }
    if (this.#returning.size > 0 && this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#returnOne());
  }

  /** One turn in each frame, the nearest first, so that scrolling never waits for many of them. */
  #returnOne(): void {
    this.#frame = 0;
    const distances = [...this.#returning].map((element) => ({ element, distance: distanceToWindow(element) }));
    const nearest = distances.sort((a, b) => a.distance - b.distance)[0]?.element;
    if (nearest === undefined) return;
    this.#returning.delete(nearest);
    const place = this.#places.get(nearest);
    if (place !== undefined) place.value = { ...place.peek(), isFar: false };
    if (this.#returning.size > 0) this.#frame = requestAnimationFrame(() => this.#returnOne());
  }
}

function distanceToWindow(element: Element): number {
  const { top, bottom } = element.getBoundingClientRect();
  return Math.max(0, top - window.innerHeight, -bottom);
}

/** Tell whether nothing is lost with a turn: it has ended, and the reader has opened or selected nothing in it. */
function canLeave(turn: Element): boolean {
  if (turn.getAttribute("aria-busy") === "true" || turn.contains(document.activeElement)) return false;
  if (turn.querySelector("[aria-expanded=true], textarea, input") !== null) return false;
  const selection = getSelection();
  return selection === null || selection.isCollapsed || !selection.containsNode(turn, true);
}
