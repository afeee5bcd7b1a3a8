// returns: [["alpha","beta"],["beta","alphabet"],["gamma"]]
interface SearchArgs { query: string; limit?: number; filters?: { lang?: string; since?: number } }
async function search({ query, limit = 2, filters: { lang = "en", since } = {} }: SearchArgs): Promise<string[]> {
  const all = ["en:alpha:1", "en:beta:5", "de:gamma:9", "en:alphabet:7"];
  return all
    .map((s) => s.split(":") as [string, string, string])
    .filter(([l, t, at]) => l === lang && t.includes(query) && Number(at) >= (since ?? 0))
    .slice(0, limit)
    .map(([, t]) => t);
}
return [await search({ query: "a" }), await search({ query: "a", filters: { since: 5 }, limit: 9 }), await search({ query: "g", filters: { lang: "de" } })];
