// error: 3:1
const a: number = 1;
else { return a; }
return 2;
