// error: 3:1 (checker)
const o: { a?: number } = {};
o?.a = 5;
return o;
