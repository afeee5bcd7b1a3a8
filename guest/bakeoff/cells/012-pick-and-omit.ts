// returns: {"picked":{"id":7,"name":"Zed"},"omitted":{"id":7,"name":"Zed"}}
function pick<T extends object, K extends keyof T>(obj: T, ...keys: K[]): Pick<T, K> {
  const out = {} as Pick<T, K>;
  for (const k of keys) out[k] = obj[k];
  return out;
}
function omit<T extends object, K extends keyof T>(obj: T, ...keys: K[]): Omit<T, K> {
  const copy = { ...obj } as any;
  for (const k of keys) delete copy[k];
  return copy as Omit<T, K>;
}
const u = { id: 7, name: "Zed", secret: "x" };
return { picked: pick(u, "id", "name"), omitted: omit(u, "secret") };
