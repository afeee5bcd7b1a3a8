// refused: module syntax
export * from "./x";
return 1;
