// returns: [12,6]
type Shape = { k: "c"; r: number } | { k: "r"; w: number; h: number };
const area = (s: Shape): number => {
  switch (s.k) {
    case "c": { const r: number = s.r; return r * r * 3; }
    case "r": return (s as Extract<Shape, { k: "r" }>).w * s.h;
    case ("x" as any): return 0;
    default: return ((_: never) => -1)(s);
  }
};
return [area({ k: "c", r: 2 }), area({ k: "r", w: 2, h: 3 })];
