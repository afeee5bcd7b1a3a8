// returns: {"value":"ok","attempts":3}
let attempts: number = 0;
async function flaky(): Promise<string> {
  attempts += 1;
  if (attempts < 3) throw new TypeError("not yet");
  return "ok";
}
async function retry<T>(fn: () => Promise<T>, max = 5): Promise<T> {
  let last: unknown;
  for (let i = 0; i < max; i++) {
    try {
      return await fn();
    } catch (e: unknown) {
      last = e;
    }
  }
  throw last as Error;
}
return { value: await retry(flaky), attempts };
