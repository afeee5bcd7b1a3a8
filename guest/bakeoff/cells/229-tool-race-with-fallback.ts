// returns: [{"from":"good","v":42},1]
type Provider = { name: string; get(): Promise<number> };
const providers: readonly Provider[] = [
  { name: "bad", get: async () => { throw new Error("down"); } },
  { name: "good", get: async () => 42 },
];
const v = await Promise.any(providers.map((p): Promise<{ from: string; v: number }> => p.get().then((v) => ({ from: p.name, v }))));
let agg = 0;
try { await Promise.any([Promise.reject<number>(new Error("x"))]); } catch (e) { agg = (e as AggregateError).errors.length; }
return [v, agg];
