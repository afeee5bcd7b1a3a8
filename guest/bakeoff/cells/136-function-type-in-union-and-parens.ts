// returns: [["a","null","object"],[1,2],"none"]
type Handler = ((e: string) => void) | null | (new () => Error);
let h: Handler = null;
const calls: string[] = [];
h = ((e: string): void => { calls.push(e); }) as (e: string) => void;
(h as (e: string) => void)("a");
const arr: (() => number)[] = [() => 1, () => 2];
const opt: ((x: number) => number)[] | undefined = undefined;
function hof(cb: (err: Error | null, data?: { [k: string]: () => void }) => void): void { cb(null, {}); }
hof((err, data) => { calls.push(String(err), typeof data); });
return [calls, arr.map((f) => f()), opt ?? "none"];
