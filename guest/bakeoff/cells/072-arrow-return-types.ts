// returns: [2,true,{"n":1},["s",1],"9",3,5,5,8,2]
const a = (x: number): number => x + 1;
const b = (x: number): x is 3 => x === 3;
const c = (): { n: number } => ({ n: 1 });
const d = async (): Promise<[string, number]> => ["s", 1];
const e = (f: (x: number) => string = (x) => String(x)): string => f(9);
const g = ({ p, q = 2 }: { p: number; q?: number }): number => p + q;
const h = ([x, y]: [number, number], ...rest: number[]): number => x + y + rest.length;
const k = (): (() => number) => () => 5;
const l = (x?: number): number | undefined => x;
const m = (): typeof a => a;
return [a(1), b(3), c(), await d(), e(), g({ p: 1 }), h([1, 2], 3, 4), k()(), l(8), m()(1)];
