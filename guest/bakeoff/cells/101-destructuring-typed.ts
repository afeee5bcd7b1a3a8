// returns: [1,5,{"d":2},{"e":3,"m":1},1,9,[4,5],4,"dq"]
const { a, b: { c = 5, ...restB } = {} as any, ...rest }: { a: number; b?: any; [k: string]: unknown } = { a: 1, b: { d: 2 }, e: 3 };
const [x, , y = 9, ...zs]: [number, number, number?, ...number[]] = [1, 2, undefined, 4, 5];
let p: number, q: string | undefined;
({ p, q = "dq" } = { p: 4 } as { p: number; q?: string });
for (const [k, v] of Object.entries({ m: 1 }) as [string, number][]) rest[k] = v;
return [a, c, restB, rest, x, y, zs, p, q];
