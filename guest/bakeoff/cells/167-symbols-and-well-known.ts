// returns: [250,"$2.5",true,"kind"]
const kind: unique symbol = Symbol.for("kind");
class Money {
  constructor(private cents: number) {}
  [Symbol.toPrimitive](hint: "number" | "string" | "default"): number | string { return hint === "string" ? `$${this.cents / 100}` : this.cents; }
  get [Symbol.toStringTag](): string { return "Money"; }
  static [Symbol.hasInstance](x: unknown): boolean { return typeof x === "object" && x !== null && "cents" in x; }
}
const m = new Money(250);
return [+m, `${m}`, ({ cents: 1 } as object) instanceof Money, Symbol.keyFor(kind)];
