// returns: {"report":{"tools":{"count":2,"value":287.8,"lowStock":["T-2"]},"toys":{"count":1,"value":0,"lowStock":["Y-1"]},"books":{"count":1,"value":165,"lowStock":["B-1"]}},"worst":"toys"}
interface Product {
  sku: string;
  name: string;
  price: number;
  stock: number;
  category: Category;
  discontinued?: boolean;
}
type Category = "tools" | "toys" | "books";
interface CategoryReport {
  count: number;
  value: number;
  lowStock: string[];
}

const products: Product[] = [
  { sku: "T-1", name: "Hammer", price: 19.9, stock: 12, category: "tools" },
  { sku: "T-2", name: "Saw", price: 24.5, stock: 2, category: "tools" },
  { sku: "Y-1", name: "Robot", price: 39, stock: 0, category: "toys" },
  { sku: "Y-2", name: "Kite", price: 9.5, stock: 40, category: "toys", discontinued: true },
  { sku: "B-1", name: "Atlas", price: 55, stock: 3, category: "books" },
];

const LOW = 5 as const;
const isActive = (p: Product): boolean => !p.discontinued;
const report: Partial<Record<Category, CategoryReport>> = {};

for (const p of products.filter(isActive)) {
  const entry: CategoryReport = (report[p.category] ??= { count: 0, value: 0, lowStock: [] });
  entry.count += 1;
  entry.value = Math.round((entry.value + p.price * p.stock) * 100) / 100;
  if (p.stock < LOW) entry.lowStock.push(p.sku);
}

const worst = (Object.entries(report) as [Category, CategoryReport][])
  .sort(([, a], [, b]) => b.lowStock.length - a.lowStock.length || a.value - b.value)[0]!;
return { report, worst: worst[0] };
