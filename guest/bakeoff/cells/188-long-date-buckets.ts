// returns: [{"day":"2024-03-01","visits":2,"p50":120,"pages":["/","/a"]},{"day":"2024-03-02","visits":3,"p50":100,"pages":["/","/b"]}]
interface Visit { at: string; page: string; ms: number }
type Bucket = { day: string; visits: number; p50: number; pages: Set<string> };
const visits: Visit[] = [
  { at: "2024-03-01T10:00:00Z", page: "/", ms: 120 },
  { at: "2024-03-01T11:30:00Z", page: "/a", ms: 80 },
  { at: "2024-03-02T09:00:00Z", page: "/", ms: 200 },
  { at: "2024-03-02T23:59:59Z", page: "/b", ms: 40 },
  { at: "2024-03-02T12:00:00Z", page: "/", ms: 100 },
];
const dayOf = (iso: string): string => new Date(iso).toISOString().slice(0, 10);
const percentile = (xs: readonly number[], p: number): number => {
  if (!xs.length) return 0;
  const s = [...xs].sort((a, b) => a - b);
  return s[Math.min(s.length - 1, Math.floor(p * s.length))]!;
};
const buckets = new Map<string, { times: number[]; pages: Set<string> }>();
for (const v of visits) {
  const k = dayOf(v.at);
  const b = buckets.get(k) ?? { times: [] as number[], pages: new Set<string>() };
  b.times.push(v.ms);
  b.pages.add(v.page);
  buckets.set(k, b);
}
const rows: Bucket[] = Array.from(buckets, ([day, b]): Bucket => ({ day, visits: b.times.length, p50: percentile(b.times, 0.5), pages: b.pages }));
return rows.map((r) => ({ ...r, pages: [...r.pages].sort() }));
