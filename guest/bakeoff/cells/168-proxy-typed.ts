// returns: [1,0,true]
const target: Record<string, number> = { a: 1 };
const p = new Proxy<Record<string, number>>(target, {
  get(t, key: string | symbol, _r: unknown): number { return typeof key === "string" ? t[key] ?? 0 : 0; },
  has: (_t: object, _k: PropertyKey): boolean => true,
});
return [p.a, p.zzz, "nope" in p];
