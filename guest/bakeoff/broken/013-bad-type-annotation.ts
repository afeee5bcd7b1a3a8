// error: 2:10
const a: = 5;
return a;
