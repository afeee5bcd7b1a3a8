// returns: {"all":7,"read":true,"write":false,"name":"Exec"}
enum Perm {
  None = 0,
  Read = 1 << 0,
  Write = 1 << 1,
  Exec = 1 << 2,
  All = Read | Write | Exec,
}
const mine: Perm = Perm.Read | Perm.Exec;
const has = (p: Perm): boolean => (mine & p) === p;
return { all: Perm.All, read: has(Perm.Read), write: has(Perm.Write), name: Perm[4] };
