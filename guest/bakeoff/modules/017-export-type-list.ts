// refused: module syntax
type A = string;
export type { A };
return 1;
