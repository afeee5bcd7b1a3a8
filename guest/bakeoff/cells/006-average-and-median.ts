// returns: [{"mean":2,"median":2},{"mean":25,"median":25}]
const stats = (xs: number[]): { mean: number; median: number } => {
  const sorted = xs.slice().sort((a, b) => a - b);
  const mid = sorted.length >> 1;
  const median = sorted.length % 2 ? sorted[mid]! : (sorted[mid - 1]! + sorted[mid]!) / 2;
  return { mean: xs.reduce((a, b) => a + b, 0) / xs.length, median };
};
return [stats([3, 1, 2]), stats([10, 20, 30, 40])];
