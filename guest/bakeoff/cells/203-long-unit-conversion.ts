// returns: [3.1069,90000,7200,"TypeError: cannot convert length to mass","SyntaxError: bad quantity \"x\""]
type Dimension = "length" | "mass" | "time";
interface UnitDef { dim: Dimension; factor: number }
const UNITS = {
  m: { dim: "length", factor: 1 },
  km: { dim: "length", factor: 1000 },
  mi: { dim: "length", factor: 1609.344 },
  g: { dim: "mass", factor: 0.001 },
  kg: { dim: "mass", factor: 1 },
  s: { dim: "time", factor: 1 },
  h: { dim: "time", factor: 3600 },
} as const satisfies Record<string, UnitDef>;
type Unit = keyof typeof UNITS;
type UnitsOf<D extends Dimension> = { [U in Unit]: (typeof UNITS)[U]["dim"] extends D ? U : never }[Unit];

function convert<U extends Unit>(value: number, from: U, to: UnitsOf<(typeof UNITS)[U]["dim"]>): number {
  const a: UnitDef = UNITS[from], b: UnitDef = UNITS[to as Unit];
  if (a.dim !== b.dim) throw new TypeError(`cannot convert ${a.dim} to ${b.dim}`);
  return +((value * a.factor) / b.factor).toFixed(4);
}
function parse(q: string): readonly [number, Unit] {
  const m = /^\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*$/i.exec(q);
  if (!m || !(m[2]! in UNITS)) throw new SyntaxError(`bad quantity ${JSON.stringify(q)}`);
  return [Number(m[1]), m[2] as Unit];
}
const out: Array<number | string> = [];
for (const [q, to] of [["5 km", "mi"], ["90 kg", "g"], ["2h", "s"], ["3 m", "kg"], ["x", "m"]] as [string, Unit][]) {
  try { const [v, u] = parse(q); out.push(convert(v, u, to as any)); } catch (e) { out.push((e as Error).name + ": " + (e as Error).message); }
}
return out;
