// refused: module syntax
const a: number = 1;
import * as path from "path";
return path.join("a", "b");
