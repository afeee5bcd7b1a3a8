// error: 2:23
const s: string = "\u{110000000}";
return s;
