// returns: {"done":["job 1 done","job 3 done"],"failed":["job 2 failed"]}
type Job = { id: number; ok: boolean };
async function run(job: Job): Promise<string> {
  if (!job.ok) throw new Error(`job ${job.id} failed`);
  return `job ${job.id} done`;
}
const results = await Promise.allSettled([{ id: 1, ok: true }, { id: 2, ok: false }, { id: 3, ok: true }].map(run));
const isRejected = (r: PromiseSettledResult<string>): r is PromiseRejectedResult => r.status === "rejected";
const isFulfilled = <T,>(r: PromiseSettledResult<T>): r is PromiseFulfilledResult<T> => r.status === "fulfilled";
return {
  done: results.filter(isFulfilled).map((r) => r.value),
  failed: results.filter(isRejected).map((r) => (r.reason as Error).message),
};
