// error: 2:34
const add = (a: number, b: number: number => a + b;
return add(1, 2);
