// returns: [[1,2,3],2,true,true]
const xs: Array<number> = [3, 1, 2];
let i: number = 0, swaps = 0;
for (i = 0; i < xs.length; i++) {
  for (let j = 0; j < xs.length - 1 - i; j++) {
    if (xs[j]! > xs[j + 1]!) { const t: number = xs[j]!; xs[j] = xs[j + 1]!; xs[j + 1] = t; swaps++; }
  }
}
const ok = xs.length <xs.length+1, cmp = (xs[0]!) <(xs[1]!);
return [xs, swaps, ok, cmp];
