// returns: "n4"
const Box = class<T> {
  constructor(readonly value: T) {}
  map<U>(fn: (v: T) => U) { return new Box<U>(fn(this.value)); }
};
return new Box<number>(4).map((n) => `n${n}`).value;
