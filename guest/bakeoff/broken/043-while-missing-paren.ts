// error: 3:7
let a: number = 3;
while a > 0 { a--; }
return a;
