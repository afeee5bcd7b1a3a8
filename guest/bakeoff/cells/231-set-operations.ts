// returns: [[1,2,3,4],[2,3],[1]]
const union = <T,>(a: Set<T>, b: Set<T>): Set<T> => new Set<T>([...a, ...b]);
const inter = <T,>(a: Set<T>, b: ReadonlySet<T>): Set<T> => new Set([...a].filter((x) => b.has(x)));
const minus = <T extends string | number>(a: Set<T>, b: Set<T>): T[] => [...a].filter((x) => !b.has(x));
const a: Set<number> = new Set([1, 2, 3]), b = new Set<number>([2, 3, 4]);
return [[...union(a, b)], [...inter(a, b)], minus(a, b)];
