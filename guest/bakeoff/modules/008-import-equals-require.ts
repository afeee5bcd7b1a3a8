// refused: module syntax
import fs = require("fs");
return fs.readFileSync("x");
