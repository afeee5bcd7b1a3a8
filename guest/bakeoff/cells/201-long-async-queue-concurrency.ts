// returns: {"out":[25,1,9,4],"peak":2}
type Thunk<T> = () => Promise<T>;
async function pool<T>(limit: number, thunks: readonly Thunk<T>[]): Promise<T[]> {
  const results: T[] = new Array<T>(thunks.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < thunks.length) {
      const i = next++;
      results[i] = await thunks[i]!();
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, thunks.length) }, worker));
  return results;
}
let running = 0, peak = 0;
const job = (n: number): Thunk<number> => async () => {
  running++;
  peak = Math.max(peak, running);
  for (let i = 0; i < n; i++) await null;
  running--;
  return n * n;
};
const out = await pool(2, [5, 1, 3, 2].map(job));
return { out, peak };
