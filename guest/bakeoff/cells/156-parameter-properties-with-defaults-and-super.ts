// returns: ["over","bb","bb!",6]
class A { constructor(public a: string) {} }
class B extends A {
  readonly c: string;
  constructor(public b: string = "bb", protected readonly d: number[] = [1, 2], override readonly a: string = "over") {
    super("base");
    this.c = this.b + "!";
    this.d.push(3);
  }
  sum(): number { return this.d.reduce((x, y) => x + y, 0); }
}
const b = new B();
return [b.a, b.b, b.c, b.sum()];
