// returns: [{"a":1},[2,4]]
const load = async <
  T extends object,
>(
  value: T,
): Promise<
  T
> => value;
const mapped = [1, 2].map(<
  N extends number,
>(n: N): number => n * 2);
return [await load({ a: 1 }), mapped];
