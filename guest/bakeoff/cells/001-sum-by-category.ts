// returns: {"food":20,"rent":800}
type Row = { category: string; amount: number };
const rows: Row[] = [
  { category: "food", amount: 12.5 },
  { category: "rent", amount: 800 },
  { category: "food", amount: 7.5 },
];
const totals: Record<string, number> = {};
for (const { category, amount } of rows) {
  totals[category] = (totals[category] ?? 0) + amount;
}
return totals;
