// returns: [10,40,90,"done"]
interface Observer<T> { next(v: T): void; complete?(): void }
type Operator<A, B> = (src: Observable<A>) => Observable<B>;
class Observable<T> {
  constructor(private readonly subscribeFn: (o: Observer<T>) => void) {}
  static of<T>(...xs: T[]): Observable<T> {
    return new Observable<T>((o) => { for (const x of xs) o.next(x); o.complete?.(); });
  }
  pipe<A>(a: Operator<T, A>): Observable<A>;
  pipe<A, B>(a: Operator<T, A>, b: Operator<A, B>): Observable<B>;
  pipe<A, B, C>(a: Operator<T, A>, b: Operator<A, B>, c: Operator<B, C>): Observable<C>;
  pipe(...ops: Operator<any, any>[]): Observable<any> { return ops.reduce((s, op) => op(s), this as Observable<any>); }
  subscribe(o: Observer<T>): void { this.subscribeFn(o); }
}
const map = <A, B>(f: (a: A) => B): Operator<A, B> => (src) => new Observable<B>((o) => src.subscribe({ next: (v) => o.next(f(v)), complete: () => o.complete?.() }));
const filter = <A,>(p: (a: A) => boolean): Operator<A, A> => (src) => new Observable<A>((o) => src.subscribe({ next: (v) => { if (p(v)) o.next(v); }, complete: () => o.complete?.() }));
const scan = <A, B>(f: (acc: B, a: A) => B, seed: B): Operator<A, B> => (src) => new Observable<B>((o) => {
  let acc = seed;
  src.subscribe({ next: (v) => o.next((acc = f(acc, v))), complete: () => o.complete?.() });
});
const got: (number | string)[] = [];
Observable.of(1, 2, 3, 4, 5)
  .pipe(filter((n: number) => n % 2 === 1), map((n) => n * 10), scan((a: number, b: number) => a + b, 0))
  .subscribe({ next: (v) => got.push(v), complete: () => got.push("done") });
return got;
