// refused: module syntax
declare function require(x: string): any;
const fs = require("fs");
return typeof fs;
