// returns: [6,6,2.5,true,"y",15,6,6]
let x: number | undefined = 5;
const a = x! + 1;
const b = x! - -1;
const c = x!/2;
const d = x! < 10;
const e = x! ? "y" : "n";
const f = x!
  * 3;
x!++;
const g = x! as number;
const h = [x!, x!][1]!;
return [a, b, c, d, e, f, g, h];
