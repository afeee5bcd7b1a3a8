// returns: [{"id":"1","name":"Pen","price":1.2},{"id":"2","name":"Ink","price":4.75},{"id":"3","name":"Paper, A4","price":6}]
const text: string = `id,name,price
1,Pen,1.20
2,Ink,4.75
3,"Paper, A4",6.00`;
function splitLine(line: string): string[] {
  const out: string[] = [];
  let cur = "", quoted = false;
  for (const ch of line) {
    if (ch === '"') quoted = !quoted;
    else if (ch === "," && !quoted) { out.push(cur); cur = ""; }
    else cur += ch;
  }
  out.push(cur);
  return out;
}
const [header, ...lines] = text.split("\n") as [string, ...string[]];
const keys = splitLine(header);
const records = lines.map((l) => Object.fromEntries(splitLine(l).map((v, i) => [keys[i] as string, v])));
return records.map((r: Record<string, string>) => ({ ...r, price: Number(r.price) }));
