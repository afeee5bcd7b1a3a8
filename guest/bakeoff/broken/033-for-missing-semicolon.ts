// error: 3:23
let s: number = 0;
for (let i = 0; i < 3 i++) s += i;
return s;
