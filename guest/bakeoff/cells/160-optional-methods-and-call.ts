// returns: [["a.init"],[-1,20]]
interface Plugin { name: string; init?(): void; run?: (n: number) => number }
const order: string[] = [];
const plugins: Plugin[] = [{ name: "a", init() { order.push("a.init"); } }, { name: "b", run: (n) => n * 10 }];
for (const p of plugins) p.init?.();
return [order, plugins.map((p) => p.run?.(2) ?? -1)];
