// returns: [true,"1"]
type Fs = typeof globalThis;
let x: import("node:fs").Stats | undefined;
type Y = import("./foo", { with: { "resolution-mode": "import" } }).Bar<string>;
const z = (a: import("a").B): string => String(a);
return [x === undefined, z(1 as any)];
