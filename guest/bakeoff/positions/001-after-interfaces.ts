// throws-at: 12
interface A {
  a: number;
  b: {
    c: string;
  };
}
type B =
  | "x"
  | "y";
const a: A = { a: 1, b: { c: "c" } };
throw new Error("here");
