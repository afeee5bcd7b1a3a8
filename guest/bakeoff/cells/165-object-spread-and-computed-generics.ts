// returns: {"a":1,"b":[2]}
const build = <K extends string, V>(k: K, v: V): { [P in K]: V } => ({ [k]: v } as { [P in K]: V });
const merged = { ...build("a", 1), ...build("b", [2]), ...(null as any), ...(false as const && { c: 1 }) };
return merged;
