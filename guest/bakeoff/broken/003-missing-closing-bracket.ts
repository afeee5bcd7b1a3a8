// error: 2:30
const xs: number[] = [1, 2, 3;
return xs;
