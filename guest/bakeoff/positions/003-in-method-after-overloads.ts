// throws-at: 8
class A {
  f(a: string): void;
  f(a: number): void;
  f(
    a: string | number,
  ): void {
    throw new Error("m");
  }
}
new A().f(1);
return 1;
