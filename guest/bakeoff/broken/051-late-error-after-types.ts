// error: 9:38
interface Row { id: number; name: string }
type Pred<T> = (t: T) => boolean;
enum Kind { A, B }
const rows: Row[] = [{ id: 1, name: "x" }];
function pick<T extends Row>(xs: T[], p: Pred<T>): T | undefined {
  return xs.find(p);
}
const r = pick(rows, (x) => x.id === );
return r;
