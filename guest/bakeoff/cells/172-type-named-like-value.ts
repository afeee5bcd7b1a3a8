// returns: [{"a":1},{"b":"x"}]
type Foo = { a: number };
const Foo = { create: (a: number): Foo => ({ a }) };
interface Bar { b: string }
function Bar(b: string): Bar { return { b }; }
return [Foo.create(1), Bar("x")];
