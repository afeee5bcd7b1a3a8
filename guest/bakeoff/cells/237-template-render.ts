// returns: "Dear Ann, you owe $12.00. ?"
const tpl: string = "Dear {{name}}, you owe {{ amount | money }}. {{missing}}";
const filters: Record<string, (v: unknown) => string> = { money: (v) => `$${Number(v).toFixed(2)}` };
function render(t: string, vars: { [k: string]: unknown }): string {
  return t.replace(/\{\{\s*(\w+)(?:\s*\|\s*(\w+))?\s*\}\}/g, (_all: string, key: string, filter?: string): string => {
    const v = vars[key] ?? "?";
    return filter ? filters[filter]?.(v) ?? String(v) : String(v);
  });
}
return render(tpl, { name: "Ann", amount: 12 });
