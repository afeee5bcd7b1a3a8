// returns: "hello"
type Fn<A = any, B = any> = (a: A) => B;
function pipe<A, B>(f: Fn<A, B>): Fn<A, B>;
function pipe<A, B, C>(f: Fn<A, B>, g: Fn<B, C>): Fn<A, C>;
function pipe(...fns: Fn[]): Fn { return (x) => fns.reduce((v, f) => f(v), x); }
const slug = pipe((s: string) => s.trim(), (s: string) => s.toLowerCase());
return slug("  HeLLo ");
