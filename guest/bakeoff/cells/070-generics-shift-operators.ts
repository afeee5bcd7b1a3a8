// returns: [[4,2,16],16]
const nested: Array<Array<Array<number>>> = [[[8]]];
const v = nested[0]![0]![0]!;
const m: Map<string, Map<string, Set<number>>> = new Map<string, Map<string, Set<number>>>();
m.set("a", new Map([["b", new Set([v >> 1, v >>> 2, v << 1])]]));
let w = v;
w >>= 1;
w >>>= 1;
w <<= 3;
return [[...m.get("a")!.get("b")!], w];
