// returns: ["x",{"a":1,"b":["y"]},1,[0,0,0],0,true]
function identity<T>(x: T): T { return x; }
function pair<A, B = A>(a: A, b: B): { a: A; b: B } { return { a, b }; }
const a = identity<string>("x");
const b = pair<number, string[]>(1, ["y"]);
const c = identity<Array<Map<string, number>>>([new Map<string, number>([["k", 1]])]);
const d = new Array<number>(3).fill(0);
const e = new Set<Array<string>>().size;
const f = identity<(x: number) => void>(() => {}) instanceof Function;
return [a, b, c[0]!.get("k"), d, e, f];
