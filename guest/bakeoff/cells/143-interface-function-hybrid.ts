// returns: [5,0]
interface Counter { (n: number): number; total: number; reset(): void }
function make(): Counter {
  const c = ((n: number): number => (c.total += n)) as Counter;
  c.total = 0;
  c.reset = (): void => { c.total = 0; };
  return c;
}
const c = make();
c(2); c(3);
const t = c.total;
c.reset();
return [t, c.total];
