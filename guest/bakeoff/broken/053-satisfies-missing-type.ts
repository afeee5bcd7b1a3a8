// error: 2:30
const a = { x: 1 } satisfies ;
return a;
