// returns: [1,2,1,3,[5]]
class C {
  a = 1
  declare b: number
  ["c"] = 2
  d = this.a as number
  ["e"] = 3
  f: number
  *gen(): Generator<number> { yield 5 }
}
const c: any = new C()
return [c.a, c.c, c.d, c.e, [...c.gen()]]
