// refused: module syntax
const a: number = 1;
export default a;
