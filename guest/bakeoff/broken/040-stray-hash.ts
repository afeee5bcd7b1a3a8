// error: 2:19
const a: number = #1;
return a;
