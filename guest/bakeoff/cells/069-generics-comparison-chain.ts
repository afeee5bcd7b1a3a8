// returns: [false,false,3,true,false,[true,true]]
const f = 5, T = 1, x = 0;
// relational chains that look like type arguments
const chain = f < T > x;
const typed = (f as number) < T;
const i = 3, n = 10;
let count = 0;
for (let k = 0; k < n; k++) if (k<i && i>k) count++;
return [chain, typed, count, i<n, i>n, [i<n,n>i]];
