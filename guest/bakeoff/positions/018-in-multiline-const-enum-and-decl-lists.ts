// throws-at: 10
const enum K {
  A = 1,
  B = A << 1,
  C = "ccc".length,
}
let a: number = K.A,
  b: string = "b",
  c!: { d: number };
return c.d + a + b.length;
