// returns: [10,"f",[1,2],[7,8],"c",1,2]
const calc = {
  total: 0 as number,
  add(n: number): typeof calc { this.total += n; return this; },
  get doubled(): number { return this.total * 2; },
  set reset(v: number) { this.total = v; },
  async fetch<T>(v: T): Promise<T> { return v; },
  *iter(): Generator<number, void, unknown> { yield 1; yield 2; },
  async *stream<T>(xs: T[]): AsyncGenerator<T> { for (const x of xs) yield x; },
  ["comp" + 1](a?: string): string { return a ?? "c"; },
  arrow: <T,>(x: T): T => x,
  fn: function <T>(x: T): T { return x; },
};
calc.add(2).add(3);
const streamed: number[] = [];
for await (const v of calc.stream<number>([7, 8])) streamed.push(v);
return [calc.doubled, await calc.fetch("f"), [...calc.iter()], streamed, (calc as any).comp1(), calc.arrow(1), calc.fn(2)];
