// returns: {"u1":[],"u2":["Read","Write"],"u3":["Read","Write","Delete"]}
enum Role { Guest = "guest", Member = "member", Admin = "admin" }
enum Action { Read = 1, Write = 2, Delete = 4 }
type Mask = number;
interface Resource { owner: string; public: boolean }
interface Subject { id: string; roles: Set<Role> }

const grants: ReadonlyMap<Role, Mask> = new Map<Role, Mask>([
  [Role.Guest, 0],
  [Role.Member, Action.Read],
  [Role.Admin, Action.Read | Action.Write | Action.Delete],
]);

function maskFor(s: Subject, r: Resource): Mask {
  let mask: Mask = r.public ? Action.Read : 0;
  for (const role of s.roles) mask |= grants.get(role)!;
  if (s.id === r.owner) mask |= Action.Read | Action.Write;
  return mask;
}
function explain(mask: Mask): string[] {
  return (Object.keys(Action) as Array<keyof typeof Action>)
    .filter((k) => typeof Action[k] === "number")
    .filter((k) => (mask & Action[k]) !== 0);
}
const doc: Resource = { owner: "u2", public: false };
const subjects: Subject[] = [
  { id: "u1", roles: new Set([Role.Guest]) },
  { id: "u2", roles: new Set([Role.Member]) },
  { id: "u3", roles: new Set([Role.Admin, Role.Member]) },
];
return Object.fromEntries(subjects.map((s) => [s.id, explain(maskFor(s, doc))]));
