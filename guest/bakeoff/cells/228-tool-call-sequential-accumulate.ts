// returns: [42,"<42>",null]
type Step = { tool: string; input: (prev: unknown[]) => unknown };
const tools = { call: async (name: string, input: unknown): Promise<unknown> => (name === "double" ? (input as number) * 2 : name === "stringify" ? `<${input}>` : null) };
const steps: Step[] = [
  { tool: "double", input: () => 21 },
  { tool: "stringify", input: (p) => p[0] },
  { tool: "unknown", input: (p) => p.at(-1) },
];
const outputs: unknown[] = [];
for (const { tool, input } of steps) outputs.push(await tools.call(tool, input(outputs)));
return outputs;
