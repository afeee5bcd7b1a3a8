// refused: module syntax
import type fs = require("fs");
return 1;
