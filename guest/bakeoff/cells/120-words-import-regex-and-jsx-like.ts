// returns: [true,true,true]
const re = /^import\s+(type\s+)?.*from/m;
const text = `// header
import type { X } from "x"`;
const html: string = "<script>import('x')</script>";
return [re.test(text), html.includes("import("), /export (default|const)/.test("export const")];
