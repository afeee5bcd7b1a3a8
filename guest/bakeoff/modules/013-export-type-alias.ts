// refused: module syntax
export type A = string;
const a: A = "x";
return a;
