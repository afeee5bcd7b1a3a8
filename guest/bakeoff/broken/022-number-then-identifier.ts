// error: 2:20
const a: number = 3px;
return a;
