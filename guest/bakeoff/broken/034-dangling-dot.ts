// error: 3:10
const o: { a: number } = { a: 1 };
return o.;
