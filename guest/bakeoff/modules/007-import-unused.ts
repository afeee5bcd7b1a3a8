// refused: module syntax
import { Foo } from "./foo";
const f: Foo = { a: 1 };
return f;
