// returns: [[0,3,6,9],[1,2]]
type Range = [start: number, end: number, step?: number];
const range = (...[start, end, step = 1]: Range): number[] => {
  const out: number[] = [];
  for (let i = start; i < end; i += step) out.push(i);
  return out;
};
const args: Range = [0, 10, 3];
return [range(...args), range(1, 3)];
