// returns: [42,"none"]
type Path = ReadonlyArray<string | number>;
function get(obj: unknown, path: Path, fallback?: unknown): unknown {
  let cur: any = obj;
  for (const p of path) {
    if (cur == null) return fallback;
    cur = cur[p];
  }
  return cur ?? fallback;
}
const data = { a: { b: [{ c: 42 }] } };
return [get(data, ["a", "b", 0, "c"]), get(data, ["a", "x", "y"], "none")];
