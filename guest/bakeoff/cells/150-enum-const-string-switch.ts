// returns: [5,-1,6,"-"]
const enum Op { Add = "+", Sub = "-", Mul = "*" }
const apply = (op: Op, a: number, b: number): number => {
  switch (op) {
    case Op.Add: return a + b;
    case Op.Sub: return a - b;
    case Op.Mul: return a * b;
  }
};
return [apply(Op.Add, 2, 3), apply("-" as Op, 2, 3), apply(Op.Mul, 2, 3), Op["Sub"]];
