// returns: {"when":"2024-01-02","n":42,"tags":["a","b"]}
interface Doc { when: string; n: number; tags?: string[] }
const text = '{"when":"2024-01-02","n":"42","tags":["b","a"]}';
const doc = JSON.parse(text, function (this: any, key: string, value: unknown): unknown {
  if (key === "n") return Number(value);
  if (Array.isArray(value)) return (value as string[]).slice().sort();
  return value;
}) as Doc;
return doc satisfies Doc;
