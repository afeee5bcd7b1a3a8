// error: 2:15
const o = { a 1, b: 2 };
return o;
