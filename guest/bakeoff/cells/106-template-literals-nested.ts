// returns: ["Name: x tags: <a>, <b> }","a|b|\\n2","q|1"]
interface P { n: string; t: string[] }
const p: P = { n: "x", t: ["a", "b"] };
const s = `Name: ${p.n as string} tags: ${p.t.map((t: string): string => `<${t}>`).join(`,${" " as const}`)} ${((): string => { type L = { a: `}` }; return `}`; })()}`;
function tag(strs: TemplateStringsArray, ...vals: unknown[]): string { return strs.raw.join("|") + vals.length; }
const t = tag`a${1}b${2 as number}\n`;
const typed = (tag as any)<string>`q${3}`;
return [s, t, typed];
