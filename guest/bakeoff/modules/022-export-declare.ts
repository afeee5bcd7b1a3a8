// refused: module syntax
export declare const x: number;
return 1;
