// refused: module syntax
namespace A { export const b = 1; }
import C = A.b;
return C;
