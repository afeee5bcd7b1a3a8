// error: 2:17
let a: number = ;
return a;
