// returns: [3,"x",3,2]
const f = (
  a: number,
  b: number
): number =>
  a + b
const g = function (
  x: string
): string
{
  return x
}
let h: number
h = 3
type T = { a: number }
const arr = [1, 2]
const n = arr.length
;[h] = [f(1, 2)]
;(globalThis as any).zzz = 1
return [f(1, 2), g("x"), h, n]
