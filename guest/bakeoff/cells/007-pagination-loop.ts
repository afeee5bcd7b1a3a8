// returns: {"seen":["a","b","c","d","e"],"pages":3}
interface Page<T> { items: T[]; next?: number }
async function fetchPage(cursor: number): Promise<Page<string>> {
  const all = ["a", "b", "c", "d", "e"];
  const items = all.slice(cursor, cursor + 2);
  return cursor + 2 < all.length ? { items, next: cursor + 2 } : { items };
}
const seen: string[] = [];
let cursor: number | undefined = 0;
let pages = 0;
while (cursor !== undefined) {
  const page: Page<string> = await fetchPage(cursor);
  seen.push(...page.items);
  cursor = page.next;
  pages++;
}
return { seen, pages };
