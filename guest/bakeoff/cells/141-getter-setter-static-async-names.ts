// returns: [7,30,8,9,10,"tias"]
const o = {
  get: 1, set: 2, async: 3, static: 4, await: 5, of: 6,
  get get(): number { return 7; },
  set set(v: number) { this.async = v; },
  async async_(): Promise<number> { return 8; },
  new(): number { return 9; },
  delete<T>(x: T): T { return x; },
  typeof: "t", in: "i", as: "as",
};
o.set = 30;
return [o.get, o.async, await o.async_(), o.new(), o.delete(10), o.typeof + o.in + o.as];
