// error: 2:32
const a: number = Math.max(1, 2;
return a;
