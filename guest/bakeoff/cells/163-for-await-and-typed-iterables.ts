// returns: [0,1,2,10,20]
async function* ticks(n: number): AsyncIterableIterator<number> { for (let i = 0; i < n; i++) yield i; }
const out: number[] = [];
for await (const t of ticks(3) as AsyncIterable<number>) out.push(t);
for await (const p of [Promise.resolve(10), 20] as (number | Promise<number>)[]) out.push(p);
return out;
