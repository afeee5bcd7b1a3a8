// returns: [{"v":"q"},1,2,{"v":5}]
function wrap<T>(v: T): { v: T } { return { v }; }
const wrapString = wrap<string>;
const makeMap = Map<string, number>;
const m = new makeMap([["a", 1]]);
const fns = [wrap<number>, wrap<boolean>];
return [wrapString("q"), m.get("a"), fns.length, (wrap<number>)(5)];
