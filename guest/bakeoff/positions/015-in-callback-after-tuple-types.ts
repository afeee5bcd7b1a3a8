// throws-at: 12
type T = [
  first: number,
  ...rest: string[],
];
const ts: T[] = [
  [1, "a"],
  [2],
];
return ts.map(
  ([n, ...rest]: T) =>
    rest[0]!.length + n,
);
