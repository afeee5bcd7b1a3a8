// returns: [1,"n",1,[1],"n",1]
const ok = true as boolean, name = "n";
const o = {
  a: ok ? (x: number): number => x : null,
  b: ok ? name : "other",
  c: (ok ? { d: 1 } : { d: 2 }) as { d: number },
  [name]: ok ? [1] as number[] : [],
  e: ok ? (name) : ("z"),
  "f-g": ok as boolean ? 1 : 2,
};
return [o.a!(1), o.b, o.c.d, o.n, o.e, o["f-g"]];
