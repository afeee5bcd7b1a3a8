// error: 2:10
function (a: number): number { return a; }
return 1;
