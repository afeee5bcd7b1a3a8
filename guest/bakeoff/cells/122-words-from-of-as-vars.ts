// returns: [[1,2],[2,4],"as",2,14]
const from = Array.from, of = [1, 2];
const as: string = "as", is = as as string;
let async = 1, await_ = 2, get = 3, set = 4, let_ = 5;
async = async + 1;
const r: number[] = [];
for (const of_ of of) r.push(of_);
const xs = from(of, (n: number) => n * 2);
return [r, xs, is, async, get + set + let_ + await_];
