// refused: module syntax
import fs from "fs";
return fs.readFileSync("x");
