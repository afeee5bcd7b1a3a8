// returns: {"got":[1,2,3],"pages":2}
interface Paged<T> { data: T[]; cursor: string | null }
type Fetcher<T> = (cursor?: string | null) => Promise<Paged<T>>;
async function* all<T>(fetch: Fetcher<T>): AsyncGenerator<T, number> {
  let cursor: string | null | undefined, pages = 0;
  do {
    const page: Paged<T> = await fetch(cursor);
    yield* page.data;
    ({ cursor } = page);
    pages++;
  } while (cursor);
  return pages;
}
const fetcher: Fetcher<number> = async (c) => (c === "2" ? { data: [3], cursor: null } : { data: [1, 2], cursor: "2" });
const got: number[] = [];
const gen = all<number>(fetcher);
let step: IteratorResult<number, number>;
while (!(step = await gen.next()).done) got.push(step.value);
return { got, pages: step.value };
