// returns: [1,"x","[object KK]",true]
const key = "dyn";
class K {
  [key]: number = 1;
  ["lit" + 1]?: string = "x";
  [Symbol.toStringTag]: string = "KK";
  maybe?(): void;
  async *gen?(): AsyncGenerator<number> { yield 1; }
}
const k = new K();
return [k.dyn, (k as any).lit1, String(k), k.maybe === undefined];
