// returns: [1,5,2,3,1]
class A {
  x = 1
  y: number
  z?: string
  static w: number = 2
  readonly q
  ;["computed"] = 3
  get
  foo(): number { return 1 }
  constructor() { this.y = 5 }
}
const a = new A()
return [a.x, a.y, A.w, a.computed, a.foo]
