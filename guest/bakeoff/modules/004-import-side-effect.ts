// refused: module syntax
import "side-effect";
return 1;
