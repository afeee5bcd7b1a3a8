// returns: [7,0,"x"]
const n = 7 as number
[1, 2].forEach((v) => v)
let log: string[] = []
const first = log as string[]
(globalThis as any).touched = true
const label = "x" satisfies string
`unused template`
return [n, first.length, label]
