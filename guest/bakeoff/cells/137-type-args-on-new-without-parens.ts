// returns: [[1],0,2]
class Stack<T> { items: T[] = []; push(x: T) { this.items.push(x); return this; } }
const s = new Stack<number>;
s.push(1);
const d = new Map<string, number>;
const t = [new Set<string>, new Set<number>].length;
return [s.items, d.size, t];
