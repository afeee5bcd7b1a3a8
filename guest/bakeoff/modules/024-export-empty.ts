// refused: module syntax
export {};
return 1;
