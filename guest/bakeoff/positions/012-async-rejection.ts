// throws-at: 7
type R<T> = Promise<
  T
>;
async function one(): R<number> {
  await null;
  throw new RangeError("late");
}
const v: number = await one();
return v;
