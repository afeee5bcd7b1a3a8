// returns: [19,true,4]
const s: string = "import fs from 'fs'";
const t = 'export default 1; require("x")';
const u = `import { a } from "b";
export const x = 1;
import type { T } from "./t";
`;
return [s.length, t.startsWith("export"), u.split("\n").length];
