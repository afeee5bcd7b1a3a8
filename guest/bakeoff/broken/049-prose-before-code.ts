// error: 2:1
Here is the program you asked for:
const a: number = 1;
return a;
