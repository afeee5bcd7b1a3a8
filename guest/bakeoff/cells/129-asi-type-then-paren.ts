// returns: "set"
type A = string
;(function (): void {})()
interface B { x: number }
[1, 2].forEach((n: number) => n)
let v: string | undefined
;[v] = ["set"]
declare let w: number
return v
