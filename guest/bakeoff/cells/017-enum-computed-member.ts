// returns: [6,3,10,11,"A","D"]
const base: number = 3;
enum E {
  A = base * 2,
  B = "xyz".length,
  C = 10,
  D,
}
return [E.A, E.B, E.C, E.D, E[6], E[11]];
