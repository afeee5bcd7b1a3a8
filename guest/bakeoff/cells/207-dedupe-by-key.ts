// returns: [{"id":1,"v":"c"},{"id":2,"v":"b"}]
const uniqBy = <T, K>(xs: T[], key: (x: T) => K): T[] => [...new Map<K, T>(xs.map((x): [K, T] => [key(x), x])).values()];
return uniqBy([{ id: 1, v: "a" }, { id: 2, v: "b" }, { id: 1, v: "c" }], (x) => x.id);
