// returns: [2,3,7,100]
const A = 100;
enum S { A = 1, B = A + 1, C = S.A + B }
const f = (): number => { const S = { A: 7 }; return S.A; };
return [S.B, S.C, f(), A];
