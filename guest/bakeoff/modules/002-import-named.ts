// refused: module syntax
import { readFile } from "node:fs/promises";
return await readFile("x");
