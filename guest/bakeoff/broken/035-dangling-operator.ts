// error: 2:22
const a: number = 1 +;
return a;
