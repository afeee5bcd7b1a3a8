// error: 5:1
const a: number = 1;
/* never closed
return a;
