// returns: [2]
const value = JSON.parse("[1,2]") as
  | number[]
  | string[];
const other = value
  .map((v) => v as unknown as number)
  .filter((v) => v > 1) as readonly number[];
return other;
