// returns: ["half=5","odd: 7","bad number: x","boom"]
type Ok<T> = { readonly ok: true; readonly value: T };
type Err<E> = { readonly ok: false; readonly error: E };
type Result<T, E = string> = Ok<T> | Err<E>;
const ok = <T>(value: T): Ok<T> => ({ ok: true, value });
const err = <E>(error: E): Err<E> => ({ ok: false, error });

function map<T, U, E>(r: Result<T, E>, f: (t: T) => U): Result<U, E> {
  return r.ok ? ok(f(r.value)) : r;
}
function andThen<T, U, E, F>(r: Result<T, E>, f: (t: T) => Result<U, F>): Result<U, E | F> {
  return r.ok ? f(r.value) : r;
}
async function tryCatch<T>(fn: () => T | Promise<T>): Promise<Result<Awaited<T>, Error>> {
  try {
    return ok(await fn());
  } catch (e) {
    return err(e instanceof Error ? e : new Error(String(e)));
  }
}
const parseNum = (s: string): Result<number> => {
  const n = Number(s);
  return Number.isNaN(n) ? err(`bad number: ${s}`) : ok(n);
};
const half = (n: number): Result<number> => (n % 2 === 0 ? ok(n / 2) : err(`odd: ${n}`));
const run = (s: string): string => {
  const r = map(andThen(parseNum(s), half), (n) => `half=${n}`);
  return r.ok ? r.value : r.error;
};
const t = await tryCatch<number>(() => { throw new TypeError("boom"); });
return [run("10"), run("7"), run("x"), t.ok ? "?" : t.error.message];
