// returns: [{"a":{"b":1,"c":3},"d":[1]},0]
type DeepPartial<T> = T extends object ? { [K in keyof T]?: DeepPartial<T[K]> } : T;
const merge = <T extends Record<string, any>>(base: T, over: DeepPartial<T>): T => {
  const out: Record<string, any> = { ...base };
  for (const [k, v] of Object.entries(over as Record<string, unknown>)) {
    out[k] = v !== null && typeof v === "object" && !Array.isArray(v) ? merge(out[k] ?? {}, v as any) : v;
  }
  return out as T;
};
const p: Promise<Array<Record<string, Map<number, Set<[string, () => void]>>>>> = Promise.resolve([]);
return [merge({ a: { b: 1, c: 2 }, d: [1] }, { a: { c: 3 } }), (await p).length];
