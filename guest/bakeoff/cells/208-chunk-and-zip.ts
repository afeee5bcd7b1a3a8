// returns: [[[1,2],[3,4],[5]],[["a",1],["b",2]]]
function chunk<T>(xs: T[], n: number): T[][] {
  const out: T[][] = [];
  for (let i = 0; i < xs.length; i += n) out.push(xs.slice(i, i + n));
  return out;
}
const zip = <A, B>(a: A[], b: B[]): Array<[A, B]> => a.slice(0, b.length).map((x, i) => [x, b[i]!]);
return [chunk([1, 2, 3, 4, 5], 2), zip(["a", "b", "c"], [1, 2])];
