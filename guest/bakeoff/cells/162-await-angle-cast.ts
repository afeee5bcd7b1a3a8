// returns: [3,3,4]
const p: Promise<unknown> = Promise.resolve({ n: 3 });
const a = <{ n: number }>await p;
const b = (await p as { n: number }).n;
const c = (<any>await p).n + 1;
return [a.n, b, c];
