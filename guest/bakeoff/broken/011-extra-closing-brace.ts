// error: 2:35
const o: { a: number } = { a: 1 } };
return o;
