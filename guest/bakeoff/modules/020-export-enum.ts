// refused: module syntax
export enum E { A, B }
return E.B;
