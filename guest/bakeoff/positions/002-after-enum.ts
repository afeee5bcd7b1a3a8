// throws-at: 9
enum E {
  A = 1,
  B,
  C = "c".length,
}
const enum F { X, Y }
declare const z: number;
throw new Error(E[F.X] ?? "none");
