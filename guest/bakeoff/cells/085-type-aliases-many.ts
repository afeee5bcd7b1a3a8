// returns: {"a":[1,{"b":null}]}
type Primitive = string | number | boolean | null | undefined;
type Json = Primitive | Json[] | { [key: string]: Json };
type Fn = (a: number, ...rest: string[]) => void;
type Ctor = new (x: number) => object;
type AbsCtor = abstract new () => object;
type Getters<T> = { [K in keyof T as `get${Capitalize<string & K>}`]: () => T[K] };
type Mutable<T> = { -readonly [K in keyof T]-?: T[K] };
type Frozen<T> = { +readonly [K in keyof T]+?: T[K] };
type Elem<T> = T extends (infer U)[] ? U : T extends ReadonlyArray<infer V extends string> ? V : never;
type Tuple = [first: string, second?: number, ...rest: boolean[]];
type Path = `/${string}/${number}`;
type Lookup = Tuple[0] | Tuple["length"];
type Q = typeof globalThis.JSON;
type Neg = -1 | 1n | "s" | true;
const j: Json = { a: [1, { b: null }] };
return j;
