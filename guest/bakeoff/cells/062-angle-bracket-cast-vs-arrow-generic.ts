// returns: [5,"a",[1,"b"],3,4,4,[1,2]]
const cast = <number>(5);
const ident = <T>(x: T): T => x;
const two = <A, B>(a: A, b: B): [A, B] => [a, b];
const asyncId = async <T>(x: T): Promise<T> => x;
const withDefault = <T = string>(x?: T) => x;
const constrained = <T extends { length: number }>(x: T): number => x.length;
const constT = <const T extends readonly unknown[]>(x: T): T => x;
return [cast, ident("a"), two(1, "b"), await asyncId(3), withDefault(4), constrained("four"), constT([1, 2])];
