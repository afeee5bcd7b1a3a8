// returns: [1,7,4,true,3,false,true]
const m = new Map<string, { list?: number[] }>([["a", { list: [1, 2] }]]);
const first = m.get("a")!.list![0]!;
const fnMaybe: (() => number) | undefined = () => 7;
const called = fnMaybe!();
let s: string | null = "abc" as string | null;
const up = s!.toUpperCase()!.length! + 1;
const neq = first! !== 2;
const idx = { a: { b: [1, 2, 3] } }!.a!.b!.length;
return [first, called, up, neq, idx, !first!, !!s!];
