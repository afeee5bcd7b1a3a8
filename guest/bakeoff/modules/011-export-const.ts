// refused: module syntax
export const a: number = 1;
return a;
