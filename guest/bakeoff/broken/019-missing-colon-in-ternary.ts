// error: 2:27
const a: number = true ? 1;
return a;
