// returns: 1
// import x from "y"
/* export default {} */
/*
import type { A } from "a";
export * from "b";
*/
const a: number = 1; // require("fs")
/** export = foo */
return a;
