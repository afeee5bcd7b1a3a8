// refused: module syntax
import type { Foo } from "./foo";
const f: Foo = { a: 1 };
return f;
