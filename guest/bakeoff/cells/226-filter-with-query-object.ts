// returns: [[{"n":9,"c":"x"}],2]
type Op<T> = { eq?: T; gt?: T; lt?: T; in?: readonly T[] };
type Where<T> = { [K in keyof T]?: T[K] | Op<T[K]> };
function matches<T extends object>(row: T, where: Where<T>): boolean {
  return (Object.keys(where) as (keyof T)[]).every((k) => {
    const cond = where[k] as unknown;
    const v = row[k];
    if (cond === null || typeof cond !== "object") return v === cond;
    const { eq, gt, lt, in: list } = cond as Op<T[keyof T]>;
    return (eq === undefined || v === eq) && (gt === undefined || v > gt) && (lt === undefined || v < lt) && (!list || list.includes(v));
  });
}
const rows = [{ n: 1, c: "x" }, { n: 5, c: "y" }, { n: 9, c: "x" }];
return [rows.filter((r) => matches(r, { n: { gt: 2 }, c: "x" })), rows.filter((r) => matches(r, { n: { in: [1, 5] } })).length];
