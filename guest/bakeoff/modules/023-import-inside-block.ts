// refused: module syntax
if (true) {
  import x from "y";
}
return 1;
