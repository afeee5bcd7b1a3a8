// error: 2:21
const a: number = 1__000;
return a;
