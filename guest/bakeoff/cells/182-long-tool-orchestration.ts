// returns: {"summaries":{"Alpha":"Body of d1"},"problems":["d3: not found"],"calls":4}
type ToolName = "search" | "fetch" | "summarize";
interface ToolResult<T> { ok: boolean; data?: T; error?: string }
interface Hit { id: string; score: number; title: string }
interface Doc { id: string; body: string }

const calls: Array<{ name: ToolName; args: unknown }> = [];
const tools = {
  async call<T>(name: ToolName, args: Record<string, unknown>): Promise<ToolResult<T>> {
    calls.push({ name, args });
    switch (name) {
      case "search":
        return { ok: true, data: [
          { id: "d1", score: 0.91, title: "Alpha" },
          { id: "d2", score: 0.42, title: "Beta" },
          { id: "d3", score: 0.77, title: "Gamma" },
        ] as unknown as T };
      case "fetch":
        if (args.id === "d3") return { ok: false, error: "not found" };
        return { ok: true, data: { id: args.id, body: `Body of ${String(args.id)}. Second sentence.` } as unknown as T };
      case "summarize":
        return { ok: true, data: (args.text as string).split(".")[0] as unknown as T };
      default: {
        const unknownTool: never = name;
        throw new Error(`unknown tool ${unknownTool}`);
      }
    }
  },
};

function unwrap<T>(r: ToolResult<T>): T {
  if (!r.ok) throw new Error(r.error ?? "failed");
  return r.data!;
}

const hits = unwrap(await tools.call<Hit[]>("search", { q: "greek" }));
const good = hits.filter((h) => h.score >= 0.5).sort((a, b) => b.score - a.score);
const summaries: Record<string, string> = {};
const problems: string[] = [];
await Promise.all(
  good.map(async ({ id, title }): Promise<void> => {
    try {
      const doc = unwrap(await tools.call<Doc>("fetch", { id }));
      summaries[title] = unwrap(await tools.call<string>("summarize", { text: doc.body }));
    } catch (e: unknown) {
      problems.push(`${id}: ${e instanceof Error ? e.message : String(e)}`);
    }
  }),
);
return { summaries, problems, calls: calls.length };
