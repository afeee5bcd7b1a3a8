// throws-at: 13
function f<
  T extends {
    a: number;
  },
  U = string,
>(
  t: T,
  u?: U,
): asserts t is T & {
  b: string;
} {
  if (!("b" in t)) throw new TypeError("no b");
}
f<{ a: number }, number>({ a: 1 });
