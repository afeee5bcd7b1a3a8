// returns: [["a"],1,[1],[2]]
type Opt<T = Array<string>>= { v: T };
function f<T = Map<string, number>>(x: T): T { return x; }
const o: Opt= { v: ["a"] };
const g: Array<number>= [1];
let h: Promise<Array<number>>=Promise.resolve([2]);
return [o.v, f(1), g, await h];
