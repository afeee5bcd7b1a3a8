// returns: [true,true,true,[true,true],2,1,2,true]
const a = 1, b = 2, c = 3;
const r1 = a < b;
const r2 = (a < b) === (b < c);
const r3 = a < b && c > b;
const list = [a < b, c > a];
const f = (...xs: unknown[]) => xs.length;
const r4 = f(a < b, c > a);
const r5 = a < (b) ? 1 : 2;
const r6 = a << b >> 1;
const r7 = a < b == true;
return [r1, r2, r3, list, r4, r5, r6, r7];
