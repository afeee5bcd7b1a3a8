// returns: [2,["url"]]
const priv: WeakMap<object, { hits: number }> = new WeakMap();
class Page {
  constructor(readonly url: string) { priv.set(this, { hits: 0 }); }
  hit(): number { return ++priv.get(this)!.hits; }
}
const p = new Page("/x");
p.hit();
return [p.hit(), Object.keys(p)];
