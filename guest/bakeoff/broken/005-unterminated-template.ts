// error: 5:1
const name: string = "x";
const s = `hello ${name};
return s;
