// returns: [5,6,true,-5,"big"]
const raw: unknown = JSON.parse('{"n": 5, "s": "x", "list": [1,2,3]}');
const n = (raw as { n: number }).n as number;
const sum = ((raw as any).list as number[]).reduce((a, b) => a + b, 0 as number);
const ok = raw as object instanceof Object;
const neg = -n as number;
const cond = n as number > 3 ? "big" as string : "small" as string;
return [n, sum, ok, neg, cond];
