// returns: ["1,-","1,x,2,y",[1,0,0,0],[1,2,3,4]]
function f(a: number, b?: string, ...rest: Array<number | string>): string {
  return [a, b ?? "-", ...rest].join(",");
}
function g(this: unknown, { a = 1, b }: { a?: number; b?: number } = {}, [c, d]: [number?, number?] = []): number[] {
  return [a, b ?? 0, c ?? 0, d ?? 0];
}
return [f(1), f(1, "x", 2, "y"), g(), g({ b: 2 }, [3, 4])];
