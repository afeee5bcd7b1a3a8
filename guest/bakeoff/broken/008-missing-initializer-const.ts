// error: 2:7 (checker)
const a: number;
return a;
