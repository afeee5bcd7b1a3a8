// returns: [3,"no","y"]
const o: { f?: <T>(x: T) => T; g?: { h<T>(x: T): T[] } } = { f: (x) => x };
const a = o.f?.<number>(3);
const b = o.g?.h<string>("x") ?? "no";
const c = o.f!<string>("y");
return [a, b, c];
