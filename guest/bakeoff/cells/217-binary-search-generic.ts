// returns: [2,-3,1]
function bsearch<T>(xs: readonly T[], target: T, cmp: (a: T, b: T) => number): number {
  let lo = 0, hi = xs.length - 1;
  while (lo <= hi) {
    const mid = (lo + hi) >>> 1;
    const c = cmp(xs[mid]!, target);
    if (c === 0) return mid;
    if (c < 0) lo = mid + 1;
    else hi = mid - 1;
  }
  return ~lo;
}
const num = (a: number, b: number): number => a - b;
return [bsearch([1, 3, 5, 7], 5, num), bsearch([1, 3, 5, 7], 4, num), bsearch(["a", "c"], "c", (a, b) => (a < b ? -1 : a > b ? 1 : 0))];
