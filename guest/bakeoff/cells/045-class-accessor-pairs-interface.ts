// returns: 42
interface HasSize { get size(): number; set size(v: number | string) }
class Img implements HasSize {
  #s = 0;
  get size(): number { return this.#s; }
  set size(v: number | string) { this.#s = typeof v === "string" ? parseInt(v, 10) : v; }
}
const i: HasSize = new Img();
i.size = "42px";
return i.size;
