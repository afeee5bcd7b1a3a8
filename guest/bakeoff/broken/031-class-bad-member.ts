// error: 3:9 (checker)
class A {
  const x: number = 1;
}
return new A();
