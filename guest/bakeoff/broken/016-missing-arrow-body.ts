// error: 2:34
const f = (x: number): number => ;
return f(1);
