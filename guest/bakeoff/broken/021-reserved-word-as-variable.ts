// error: 2:7
const class: string = "x";
return 1;
