// returns: [0,1,10,11,20,21]
const found: number[] = [];
outer: for (let i: number = 0; i < 4; i++) {
  inner:
  for (let j: number = 0, k: string = ""; j < 4; j++, k += "x") {
    if (j === 2) continue outer;
    if (i === 3) break outer;
    found.push(i * 10 + j);
  }
}
type: for (const x of [1]) { if (x) break type; }
declare: { break declare; }
return found;
