// returns: [2,"a"]
class Box<T> {
  constructor(protected v: T) {}
  get(): T { return this.v; }
}
class NumBox extends Box<number> {
  override get(): number { return super.get() + 1; }
}
class PairBox<A, B> extends Box<[A, B]> {
  first(): A { return this.v[0]; }
}
return [new NumBox(1).get(), new PairBox<string, number>(["a", 2]).first()];
