// returns: {"a":2,"b":1,"c":2}
function groupBy<T, K extends string | number>(items: readonly T[], key: (item: T) => K): Map<K, T[]> {
  const out = new Map<K, T[]>();
  for (const item of items) {
    const k = key(item);
    const list = out.get(k);
    if (list) list.push(item);
    else out.set(k, [item]);
  }
  return out;
}
const grouped = groupBy(["apple", "avocado", "beet", "cherry", "corn"], (s) => s[0]!);
return Object.fromEntries([...grouped].map(([k, v]): [string, number] => [k, v.length]));
