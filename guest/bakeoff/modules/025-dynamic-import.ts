// refused: module syntax
const fs: any = await import("node:fs");
return Object.keys(fs);
