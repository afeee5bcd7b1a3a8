// error: 2:22
const a = Math.max(1,, 2);
return a;
