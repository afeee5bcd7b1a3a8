// error: 3:7
interface A { a: number;
const x: A = { a: 1 };
return x;
