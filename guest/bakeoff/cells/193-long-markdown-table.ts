// returns: ["| item     | qty | unit price |","| -------- | --- | ---------- |","| pen      |  12 |      $1.50 |","| notebook |   3 |        n/a |"]
type Align = "left" | "right" | "center";
interface Column<T> { key: keyof T & string; title?: string; align?: Align; format?: (value: T[keyof T]) => string }

function table<T extends object>(rows: readonly T[], columns: Column<T>[]): string {
  const cell = (row: T, c: Column<T>): string => {
    const v = row[c.key as keyof T];
    return c.format ? c.format(v) : v == null ? "" : String(v);
  };
  const widths = columns.map((c) => Math.max((c.title ?? c.key).length, ...rows.map((r) => cell(r, c).length)));
  const pad = (s: string, w: number, align: Align = "left"): string => {
    switch (align) {
      case "right": return s.padStart(w);
      case "center": {
        const left = Math.floor((w - s.length) / 2);
        return s.padStart(s.length + left).padEnd(w);
      }
      default: return s.padEnd(w);
    }
  };
  const line = (cells: string[]): string => `| ${cells.join(" | ")} |`;
  return [
    line(columns.map((c, i) => pad(c.title ?? c.key, widths[i]!, c.align))),
    line(widths.map((w) => "-".repeat(w))),
    ...rows.map((r) => line(columns.map((c, i) => pad(cell(r, c), widths[i]!, c.align)))),
  ].join("\n");
}
interface Sale { item: string; qty: number; price?: number }
const sales: Sale[] = [{ item: "pen", qty: 12, price: 1.5 }, { item: "notebook", qty: 3 }];
return table(sales, [{ key: "item" }, { key: "qty", align: "right" }, { key: "price", title: "unit price", align: "right", format: (v) => (v === undefined ? "n/a" : `$${(v as number).toFixed(2)}`) }]).split("\n");
