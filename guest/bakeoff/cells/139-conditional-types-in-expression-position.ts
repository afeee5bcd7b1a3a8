// returns: [3,3,true]
const v = 3;
const r = v as number extends string ? "a" : "b" extends infer U ? U : never;
const q = (v as any) ? (v as typeof v extends number ? number : string) : 0;
const z = <T,>(x: T): x is T extends string ? T : never => typeof x === "string";
return [r, q, z("s")];
