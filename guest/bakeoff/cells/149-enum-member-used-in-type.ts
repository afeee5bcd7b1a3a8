// returns: [1,2]
enum K { A = "a", B = "b" }
type Rec = { [key in K]: number };
type OnlyA = K.A;
const r: Rec = { [K.A]: 1, [K.B]: 2 };
const f = (k: OnlyA | `${K}`): number => r[k as K];
return [f(K.A), f("b")];
