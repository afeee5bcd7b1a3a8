// error: 2:21
const a: number = 1 const b = 2;
return a + b;
