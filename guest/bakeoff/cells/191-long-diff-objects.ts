// returns: [{"op":"replace","path":"/env/B","from":"2","to":"3"},{"op":"add","path":"/env/C","to":"4"},{"op":"replace","path":"/ports","from":[80],"to":[80,443]}]
type Change = { op: "add" | "remove" | "replace"; path: string; from?: unknown; to?: unknown };
type Dict = { [key: string]: unknown };
const isDict = (v: unknown): v is Dict => typeof v === "object" && v !== null && !Array.isArray(v);

function diff(a: Dict, b: Dict, prefix: string = ""): Change[] {
  const changes: Change[] = [];
  const keys = new Set<string>([...Object.keys(a), ...Object.keys(b)]);
  for (const key of [...keys].sort()) {
    const path = `${prefix}/${key}`;
    const va = a[key], vb = b[key];
    if (!(key in b)) changes.push({ op: "remove", path, from: va });
    else if (!(key in a)) changes.push({ op: "add", path, to: vb });
    else if (isDict(va) && isDict(vb)) changes.push(...diff(va, vb, path));
    else if (JSON.stringify(va) !== JSON.stringify(vb)) changes.push({ op: "replace", path, from: va, to: vb });
  }
  return changes;
}

const before = { name: "svc", env: { A: "1", B: "2" }, ports: [80] };
const after = { name: "svc", env: { A: "1", B: "3", C: "4" }, ports: [80, 443] };
return diff(before as Dict, after as Dict);
