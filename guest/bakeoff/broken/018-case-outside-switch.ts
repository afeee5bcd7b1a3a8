// error: 3:1
const a: string = "x";
case "x": return 1;
