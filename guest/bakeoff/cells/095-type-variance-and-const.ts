// returns: [["a",1],"s",[3]]
interface Producer<out T> { make(): T }
interface Consumer<in T> { take(v: T): void }
function tuple<const T extends readonly unknown[]>(...xs: T): T { return xs; }
class Box<in out T> { constructor(public v: T) {} swap<const U>(u: U): Box<U> { return new Box(u); } }
const p: Producer<number> = { make: () => 3 };
const got: number[] = [];
const c: Consumer<number> = { take(v) { got.push(v); } };
c.take(p.make());
return [tuple("a", 1), new Box(1).swap("s").v, got];
