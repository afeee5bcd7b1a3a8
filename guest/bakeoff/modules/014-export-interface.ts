// refused: module syntax
export interface A { a: number }
const a: A = { a: 1 };
return a;
