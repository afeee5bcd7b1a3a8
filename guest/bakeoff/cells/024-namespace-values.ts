// returns: {"area":28,"pi2":"6.28","kind":"circle"}
namespace Geometry {
  export const PI2 = Math.PI * 2;
  const hidden = 2;
  export function area(r: number): number {
    return Math.round(Math.PI * r ** hidden);
  }
  export interface Shape { kind: string }
}
const s: Geometry.Shape = { kind: "circle" };
return { area: Geometry.area(3), pi2: Geometry.PI2.toFixed(2), kind: s.kind };
