// returns: [10,3,5]
function sum(...ns: [number, ...number[]]): number { return ns.reduce((a, b) => a + b); }
function count(): number { return (arguments as IArguments).length; }
const nums: [number, number] = [4, 5];
return [sum(1, ...nums), (count as any)(1, 2, 3), Math.max(...(new Set<number>(nums) as Iterable<number>))];
