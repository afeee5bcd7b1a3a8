// refused: module syntax
export as namespace Foo;
return 1;
