// returns: {"month":{"2024-01":{"units":15,"revenue":389.3},"2024-02":{"units":9,"revenue":569.65}},"region":{"EU":{"units":18,"revenue":419.15},"US":{"units":6,"revenue":539.8}},"product":{"widget":{"units":21,"revenue":208.95},"gadget":{"units":3,"revenue":750}}}
const CSV = `date,region,product,units,revenue
2024-01-03,EU,widget,10,99.50
2024-01-04,US,widget,4,39.80
2024-01-09,EU,gadget,1,250
2024-02-01,EU,widget,7,69.65
2024-02-11,US,gadget,2,500`;
type Raw = Record<string, string>;
interface Sale { month: `${number}-${number}`; region: "EU" | "US"; product: string; units: number; revenue: number }
const [head = "", ...rest] = CSV.split("\n");
const cols = head.split(",");
const sales = rest
  .map((l) => l.split(","))
  .map((vals): Raw => Object.fromEntries(cols.map((c, i): [string, string] => [c, vals[i] ?? ""])))
  .map(({ date, region, product, units, revenue }: Raw): Sale => ({
    month: date!.slice(0, 7) as Sale["month"],
    region: region as Sale["region"],
    product: product!,
    units: parseInt(units!, 10),
    revenue: parseFloat(revenue!),
  }));
type Agg = { units: number; revenue: number };
function pivot<K extends "month" | "region" | "product">(key: K): { [k: string]: Agg } {
  return sales.reduce<{ [k: string]: Agg }>((acc, s) => {
    const a = (acc[s[key]] ??= { units: 0, revenue: 0 });
    a.units += s.units;
    a.revenue = +(a.revenue + s.revenue).toFixed(2);
    return acc;
  }, {});
}
return { month: pivot("month"), region: pivot("region"), product: pivot("product") };
