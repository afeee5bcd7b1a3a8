// returns: [102334155,41]
function memoize<A extends readonly unknown[], R>(fn: (...args: A) => R): ((...args: A) => R) & { cache: Map<string, R> } {
  const cache = new Map<string, R>();
  const wrapped = (...args: A): R => {
    const key = JSON.stringify(args);
    if (!cache.has(key)) cache.set(key, fn(...args));
    return cache.get(key)!;
  };
  return Object.assign(wrapped, { cache });
}
const fib: ((n: number) => number) & { cache: Map<string, number> } = memoize((n: number): number => (n < 2 ? n : fib(n - 1) + fib(n - 2)));
return [fib(40), fib.cache.size];
