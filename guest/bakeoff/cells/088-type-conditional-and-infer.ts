// returns: ["abab"]
type Unwrap<T> = T extends Promise<infer U> ? Unwrap<U> : T;
type Args<F> = F extends (...args: infer A) => any ? A : never;
type Ret<F> = F extends (...args: any[]) => infer R ? R : never;
type IsNever<T> = [T] extends [never] ? true : false;
type Filter<T, U> = T extends U ? never : T;
async function f(a: number, b: string): Promise<string[]> { return [b.repeat(a)]; }
const args: Args<typeof f> = [2, "ab"];
const r: Unwrap<Ret<typeof f>> = await f(...args);
return r;
