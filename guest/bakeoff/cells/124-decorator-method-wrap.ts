// returns: [6,2]
function twice<T extends (...args: any[]) => number>(fn: T, _ctx: ClassMethodDecoratorContext): T {
  return function (this: any, ...args: any[]): number { return fn.apply(this, args) * 2; } as T;
}
class Calc {
  @twice
  add(a: number, b: number): number { return a + b; }
  @twice static one(): number { return 1; }
}
return [new Calc().add(1, 2), Calc.one()];
