// returns: 6
type Curry<A extends unknown[], R> = A extends [infer H, ...infer T] ? (h: H) => Curry<T, R> : R;
const curry = <A extends unknown[], R>(fn: (...args: A) => R, ...got: unknown[]): Curry<A, R> =>
  (got.length >= fn.length ? fn(...(got as A)) : (x: unknown) => curry(fn as any, ...got, x)) as Curry<A, R>;
const add3 = curry((a: number, b: number, c: number): number => a + b + c);
return add3(1)(2)(3);
