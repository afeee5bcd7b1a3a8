// error: 6:1
class A {
  x: number = 1;
  get(): number { return this.x;
}
return new A().get();
