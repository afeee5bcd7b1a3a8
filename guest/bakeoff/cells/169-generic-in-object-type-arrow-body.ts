// returns: [{"a":1,"b":{"c":"s"}},[{"r":2}],false]
const f = (x: number): { a: number; b: { c: string } } => { return { a: x, b: { c: "s" } }; };
const g = <T extends { a: number }>({ a }: T): { r: T["a"] }[] => [{ r: a }];
const h = (x: { y: (z: number) => void } | undefined): x is { y: (z: number) => void } => !!x;
return [f(1), g({ a: 2 }), h(undefined)];
