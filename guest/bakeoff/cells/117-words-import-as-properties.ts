// returns: ["j","i",2,"r:q","j",2]
interface Mod { import: string; export?: number; require(x: string): string }
const m: Mod = { import: "i", export: 2, require(x: string): string { return `r:${x}`; } };
const { import: imp, export: exp } = m;
m.import = "j";
return [m.import, imp, exp, m.require("q"), m?.import, m["export"]];
