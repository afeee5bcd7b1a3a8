// returns: [2,1,1,3,"z",5,1]
const t = true as boolean;
const a = t ? (x: number) => x + 1 : (x: number) => x - 1;
const b = t ? (1) : (2);
const c = t ? (b) : a;
const d = t ? ((y): number => y)(3) : 4;
const e = t ? { f: (z: string): string => z }.f("z") : null;
const x = 5;
const g = t ? (x) : (x);
const h = t ? (q = 1) => q : 0;
return [a(1), b, c, d, e, g, (h as () => number)()];
