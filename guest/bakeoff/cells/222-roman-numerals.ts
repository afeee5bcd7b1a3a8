// returns: ["MCMXCIV","MMXXIV","IV"]
const table: ReadonlyArray<readonly [number, string]> = [[1000, "M"], [900, "CM"], [500, "D"], [400, "CD"], [100, "C"], [90, "XC"], [50, "L"], [40, "XL"], [10, "X"], [9, "IX"], [5, "V"], [4, "IV"], [1, "I"]];
const toRoman = (n: number): string => {
  let s = "";
  for (const [v, r] of table) while (n >= v) { s += r; n -= v; }
  return s;
};
return [1994, 2024, 4].map(toRoman);
