// error: 2:26
const s: string = "hello;
return s;
