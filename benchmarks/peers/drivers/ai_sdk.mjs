// AI SDK code mode: QuickJS in WebAssembly, in worker threads.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { PROGRAMS, add, generatedTool, serve, slow } from "./serve.mjs";

const load = createRequire(`${process.env.PEER_DIRECTORY}/package.json`);
const find = (name) => import(pathToFileURL(load.resolve(name)));
const { jsonSchema, tool } = await find("ai");
const { experimental_runCodeMode: runCodeMode } = await import(
  pathToFileURL(`${process.env.PEER_DIRECTORY}/node_modules/@ai-sdk/code-mode/dist/index.js`)
);

async function open(toolCount) {
  const number = { type: "number" };
  const tools = {
    add: tool({
      description: "Add two numbers.",
      inputSchema: jsonSchema({ type: "object", properties: { a: number, b: number } }),
      execute: async ({ a, b }) => add(a, b),
    }),
    slow: tool({
      description: "Wait.",
      inputSchema: jsonSchema({ type: "object", properties: { n: number } }),
      execute: async ({ n }) => slow(n),
    }),
  };
  for (let n = 0; n < toolCount - 2; n++) {
    const { name, description, schema } = generatedTool(n);
    tools[name] = tool({ description, inputSchema: jsonSchema(schema), execute: async () => name });
  }
  return {
    run: (work) => runCodeMode({ js: PROGRAMS[work], tools }),
    reasons: { suspend: "resumes by running the program again", search: "has no search" },
  };
}

await serve(open);
