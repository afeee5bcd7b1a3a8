// returns: [6,2,true,false]
class Counter {
  #count = 0;
  static #instances: number = 0;
  readonly id: number;
  constructor() {
    this.id = ++Counter.#instances;
  }
  increment(by: number = 1): this {
    this.#count += by;
    return this;
  }
  get value(): number { return this.#count; }
  static get created(): number { return Counter.#instances; }
  static isCounter(o: object): o is Counter { return #count in o; }
}
const c = new Counter();
new Counter();
return [c.increment().increment(5).value, Counter.created, Counter.isCounter(c), Counter.isCounter({})];
