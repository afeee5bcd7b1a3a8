// returns: {"log":["+ann","ann: hi"],"left":0,"closed":0}
type Events = {
  message: [from: string, text: string];
  join: [who: string];
  close: [];
};
type Listener<A extends unknown[]> = (...args: A) => void;

class Emitter<M extends Record<string, unknown[]>> {
  private readonly listeners: { [K in keyof M]?: Set<Listener<M[K]>> } = {};

  on<K extends keyof M>(event: K, fn: Listener<M[K]>): () => void {
    const set = (this.listeners[event] ??= new Set<Listener<M[K]>>());
    set.add(fn);
    return () => void set.delete(fn);
  }

  once<K extends keyof M>(event: K, fn: Listener<M[K]>): void {
    const off = this.on(event, ((...args: M[K]) => {
      off();
      fn(...args);
    }) as Listener<M[K]>);
  }

  emit<K extends keyof M>(event: K, ...args: M[K]): number {
    const set = this.listeners[event];
    if (!set) return 0;
    for (const fn of [...set]) fn(...args);
    return set.size;
  }
}

const bus = new Emitter<Events>();
const log: string[] = [];
const off = bus.on("message", (from, text) => { log.push(`${from}: ${text}`); });
bus.once("join", (who) => log.push(`+${who}`));
bus.emit("join", "ann");
bus.emit("join", "bob");
bus.emit("message", "ann", "hi");
off();
const left = bus.emit("message", "bob", "lost");
return { log, left, closed: bus.emit("close") };
