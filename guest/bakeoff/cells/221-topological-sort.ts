// returns: [["core","lib","log","app"],"cycle: a > b > a"]
type Deps = Readonly<Record<string, readonly string[]>>;
function topo(deps: Deps): string[] {
  const out: string[] = [], state = new Map<string, "visiting" | "done">();
  const visit = (n: string, trail: string[] = []): void => {
    if (state.get(n) === "done") return;
    if (state.get(n) === "visiting") throw new Error(`cycle: ${[...trail, n].join(" > ")}`);
    state.set(n, "visiting");
    for (const d of deps[n] ?? []) visit(d, [...trail, n]);
    state.set(n, "done");
    out.push(n);
  };
  Object.keys(deps).forEach((n) => visit(n));
  return out;
}
let cyc = "";
try { topo({ a: ["b"], b: ["a"] }); } catch (e) { cyc = (e as Error).message; }
return [topo({ app: ["lib", "log"], lib: ["core"], log: ["core"], core: [] }), cyc];
