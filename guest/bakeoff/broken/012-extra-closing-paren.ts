// error: 2:26
const n: number = (1 + 2));
return n;
