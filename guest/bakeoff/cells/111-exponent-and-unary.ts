// returns: [9,0.5,3,"number",true,-4,3,false,9]
const n = 3 as number;
const a = (-n) ** 2;
const b = 2 ** -1 as number;
const c = +(n as unknown as string);
const d = typeof n as string;
const e = void 0 as unknown;
const f = ~n as number, g = - -n, h = !n as boolean;
let i = n; i **= 2;
return [a, b, c, d, e === undefined, f, g, h, i];
