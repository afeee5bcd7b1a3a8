// returns: [5,3,1,2,"hello"]
const raw: unknown = "hello";
const len: number = (<string>raw).length;
const list = <number[]>[1, 2, 3];
const obj = <{ a: number }>{ a: 1 };
const fn = <(x: number) => number>((x) => x + 1);
const chained = <any><unknown>raw;
return [len, list.length, obj.a, fn(1), chained];
