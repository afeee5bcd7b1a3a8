// returns: [{"path":["A","C","B","D"],"cost":8},null]
type NodeId = string;
interface Edge { to: NodeId; weight: number }
type Graph = Map<NodeId, Edge[]>;

function buildGraph(edges: ReadonlyArray<readonly [NodeId, NodeId, number]>): Graph {
  const g: Graph = new Map();
  for (const [a, b, weight] of edges) {
    if (!g.has(a)) g.set(a, []);
    if (!g.has(b)) g.set(b, []);
    g.get(a)!.push({ to: b, weight });
    g.get(b)!.push({ to: a, weight });
  }
  return g;
}

function shortest(g: Graph, from: NodeId, to: NodeId): { path: NodeId[]; cost: number } | null {
  const dist = new Map<NodeId, number>([[from, 0]]);
  const prev = new Map<NodeId, NodeId>();
  const open = new Set<NodeId>([from]);
  while (open.size > 0) {
    let best: NodeId | undefined;
    for (const n of open) {
      if (best === undefined || dist.get(n)! < dist.get(best)!) best = n;
    }
    const u = best as NodeId;
    if (u === to) break;
    open.delete(u);
    for (const { to: v, weight } of g.get(u) ?? []) {
      const alt = dist.get(u)! + weight;
      if (alt < (dist.get(v) ?? Infinity)) {
        dist.set(v, alt);
        prev.set(v, u);
        open.add(v);
      }
    }
  }
  if (!dist.has(to)) return null;
  const path: NodeId[] = [to];
  while (path[0] !== from) path.unshift(prev.get(path[0]!)!);
  return { path, cost: dist.get(to)! };
}

const g = buildGraph([["A", "B", 4], ["A", "C", 1], ["C", "B", 2], ["B", "D", 5], ["C", "D", 9]] as const);
return [shortest(g, "A", "D"), shortest(g, "A", "Z")];
