// returns: 36
type Op = (a: number, b: number) => number;
const ops = {
  add: (a, b) => a + b,
  mul: (a, b) => a * b,
} satisfies Record<string, Op>;
const list = [1, 2, 3] satisfies number[];
return list.reduce(ops.add satisfies Op) * ops.mul(2, 3);
