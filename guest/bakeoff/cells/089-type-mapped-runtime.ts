// returns: {"a":true,"b":false,"c":false}
type Flags<T> = { [K in keyof T]: boolean };
function flags<T extends object>(o: T): Flags<T> {
  const out = {} as { [K in keyof T]: boolean };
  for (const k in o) out[k as keyof T] = Boolean(o[k as keyof T]);
  return out;
}
return flags({ a: 1, b: "", c: null });
