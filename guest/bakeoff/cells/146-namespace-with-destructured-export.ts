// returns: [1,2,3,3,10]
namespace Cfg {
  const src = { a: 1, b: 2, list: [3, 4] };
  export const { a, b: renamed } = src;
  export const [first, second] = src.list;
  export let mutable = a;
  mutable += renamed;
  export async function sum(): Promise<number> { return a + renamed + first! + second!; }
}
return [Cfg.a, Cfg.renamed, Cfg.first, Cfg.mutable, await Cfg.sum()];
