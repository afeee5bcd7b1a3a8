// returns: [3,19,4]
function build({ w = 1, h = w * 2 }: { w?: number; h?: number } = {}, cb: (n: number) => number = (n: number): number => n + 1): number {
  return cb(w * h);
}
return [build(), build({ w: 3 }), build({ w: 2, h: 2 }, (n) => n)];
