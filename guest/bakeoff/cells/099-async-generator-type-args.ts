// returns: ["a","b","c"]
async function* paginate<T, R = void>(pages: T[][]): AsyncGenerator<T, R | undefined, unknown> {
  for (const page of pages) {
    for (const item of page) yield item as T;
    await null;
  }
  return undefined;
}
const out: string[] = [];
for await (const s of paginate<string>([["a"], ["b", "c"]])) out.push(s);
return out;
