// error: 5:6
const rows: number[][] = [
  [1, 2]
  [3, 4],
  [5 6],
];
return rows;
