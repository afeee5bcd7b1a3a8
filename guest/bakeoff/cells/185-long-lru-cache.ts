// returns: {"b":null,"keys":["a","c"],"stats":{"hits":1,"misses":1,"size":2}}
class LruCache<K, V> {
  readonly #map = new Map<K, V>();
  #hits = 0;
  #misses = 0;

  constructor(private readonly capacity: number) {
    if (capacity < 1) throw new RangeError("capacity must be positive");
  }

  get(key: K): V | undefined {
    if (!this.#map.has(key)) {
      this.#misses++;
      return undefined;
    }
    const value = this.#map.get(key)!;
    this.#map.delete(key);
    this.#map.set(key, value);
    this.#hits++;
    return value;
  }

  set(key: K, value: V): this {
    this.#map.delete(key);
    this.#map.set(key, value);
    if (this.#map.size > this.capacity) {
      const oldest = this.#map.keys().next().value as K;
      this.#map.delete(oldest);
    }
    return this;
  }

  get stats(): Readonly<{ hits: number; misses: number; size: number }> {
    return { hits: this.#hits, misses: this.#misses, size: this.#map.size };
  }

  *keys(): IterableIterator<K> {
    yield* this.#map.keys();
  }
}

const cache = new LruCache<string, number>(2).set("a", 1).set("b", 2);
cache.get("a");
cache.set("c", 3);
return { b: cache.get("b") ?? null, keys: [...cache.keys()], stats: cache.stats };
