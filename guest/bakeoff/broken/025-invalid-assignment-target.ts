// error: 3:1 (checker)
const a: number = 1;
1 = a;
return a;
