// error: 3:5 (checker)
let a: number = 1;
let a: number = 2;
return a;
