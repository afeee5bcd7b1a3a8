// error: 4:5 (checker)
interface A {
  a: number
  = 5;
}
return 1;
