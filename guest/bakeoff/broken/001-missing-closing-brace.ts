// error: 5:1
function f(a: number): number {
  return a + 1;
return f(2);
