// returns: {"xs":[0,1,1,2,3,5,8,13],"end":"end"}
function* fib(limit: number): Generator<number, string, void> {
  let [a, b]: [number, number] = [0, 1];
  while (a < limit) {
    yield a;
    [a, b] = [b, a + b];
  }
  return "end";
}
const it: Iterator<number, string> = fib(20);
const xs: number[] = [];
let r: IteratorResult<number, string>;
while (!(r = it.next()).done) xs.push(r.value as number);
return { xs, end: r.value };
