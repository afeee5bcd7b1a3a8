// returns: 11
let total = 1
const bump = (n: number): number => (total += n)
bump(1)
interface Ignored { a: number }
(bump as Function)(2)
type Also = string
[3, 4].forEach(bump)
declare const nothing: unknown
+total
abstract class Z { abstract q(): void }
return total
