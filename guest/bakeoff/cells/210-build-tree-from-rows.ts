// returns: [{"id":1,"label":"top","children":[{"id":2,"label":"kid","children":[{"id":3,"label":"grandkid","children":[]}]}]}]
type Flat = { id: number; parent: number | null; label: string };
type Nested = Omit<Flat, "parent"> & { children: Nested[] };
const rows: Flat[] = [{ id: 1, parent: null, label: "top" }, { id: 2, parent: 1, label: "kid" }, { id: 3, parent: 2, label: "grandkid" }];
const nodes = new Map<number, Nested>(rows.map(({ parent: _p, ...r }) => [r.id, { ...r, children: [] }]));
const roots: Nested[] = [];
for (const { id, parent } of rows) (parent === null ? roots : nodes.get(parent)!.children).push(nodes.get(id)!);
return roots;
