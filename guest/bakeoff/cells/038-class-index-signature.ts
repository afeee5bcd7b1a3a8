// returns: {"kind":"dict","a":1,"b":[2]}
class Dict {
  [key: string]: unknown;
  static [id: number]: string;
  readonly kind = "dict";
  set(k: string, v: unknown): this { this[k] = v; return this; }
}
const d = new Dict().set("a", 1).set("b", [2]);
return { ...d };
