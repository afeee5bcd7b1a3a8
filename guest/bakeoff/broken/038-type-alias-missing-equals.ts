// error: 2:8
type A string;
const a: A = "x";
return a;
