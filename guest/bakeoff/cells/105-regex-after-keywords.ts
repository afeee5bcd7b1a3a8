// returns: [[["b",2],["a",1],null],"object",["a","b","c"],true,1]
const lines: string[] = ["b: 2", "a: 1", "# c"];
const f = (s: string) => /^#/.test(s);
function parse(s: string): [string, number] | null {
  if (f(s)) return null;
  const m = /^(\w+):\s*(\d+)$/.exec(s);
  return m ? [m[1]!, +m[2]!] : null;
}
const g = function* (): Generator<RegExp> { yield /x/g; };
const ty = typeof /x/ as string;
const arr = [/a/, /b/ as RegExp, ...[/c/]].map((r: RegExp) => r.source);
const no = !/z/.test("a");
return [lines.map(parse), ty, arr, no, [...g()].length];
