// error: 3:9
const a: number = 1;
if (a > ) return 1;
return 2;
