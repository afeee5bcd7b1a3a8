// returns: [[1,4],[5,9]]
type Interval = [lo: number, hi: number];
function merge(xs: Interval[]): Interval[] {
  const sorted = [...xs].sort(([a], [b]) => a - b);
  const out: Interval[] = [];
  for (const [lo, hi] of sorted) {
    const last = out.at(-1);
    if (last && lo <= last[1]) last[1] = Math.max(last[1], hi);
    else out.push([lo, hi]);
  }
  return out;
}
return merge([[5, 8], [1, 3], [2, 4], [8, 9]]);
