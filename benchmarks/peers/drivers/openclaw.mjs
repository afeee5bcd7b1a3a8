// OpenClaw code mode with its QuickJS executor: QuickJS in WebAssembly, in worker threads.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { PROGRAMS, QUERY, add, generatedTool, serve, slow } from "./serve.mjs";

// Before the import: OpenClaw must not see the configuration of the user.
process.env.OPENCLAW_STATE_DIR = process.env.HOME = mkdtempSync(join(tmpdir(), "bench-openclaw-"));
const surface = `${process.env.PEER_DIRECTORY}/node_modules/openclaw/dist/plugin-sdk/agent-harness-tool-runtime.js`;
const { createAgentHarnessToolSurfaceRuntime } = await import(pathToFileURL(surface));

function describe(name, description, parameters, call) {
  return {
    name,
    label: name,
    description,
    parameters,
    execute: async (_id, input) => {
      const details = await call(input);
      return { content: [{ type: "text", text: JSON.stringify(details) }], details };
    },
  };
}

async function open(toolCount) {
  const number = { type: "number" };
  const tools = [
    describe("add", "Add two numbers.", { type: "object", properties: { a: number, b: number } }, ({ a, b }) => add(a, b)),
    describe("slow", "Wait.", { type: "object", properties: { n: number } }, ({ n }) => slow(n)),
  ];
  for (let n = 0; n < toolCount - 2; n++) {
    const { name, description, schema } = generatedTool(n);
    tools.push(describe(name, description, schema, () => name));
  }
  const config = { tools: { codeMode: { enabled: true, executor: "quickjs", timeoutMs: 60_000 } } };
  const runtime = createAgentHarnessToolSurfaceRuntime({
    config,
    agentId: "main",
    sessionId: "bench",
    sessionKey: "agent:main:bench",
    runId: "bench",
    modelToolsEnabled: true,
    executeTool: ({ tool, toolCallId, input, signal }) => tool.execute(toolCallId, input, signal),
  });
  const { tools: visible } = runtime.compactTools(tools);
  const [exec, wait] = ["exec", "wait"].map((name) => visible.find((tool) => tool.name === name));
  let calls = 0;
  const call = async (tool, input) => (await tool.execute(`call-${++calls}`, input)).details;
  const finish = async (result) => {
    // It suspends a program that waits for its tools.
    while (result.status === "waiting") result = await call(wait, { runId: result.runId });
    if (result.status !== "completed") throw new Error(JSON.stringify(result));
    return result.value;
  };
  return {
    run: async (work) => finish(await call(exec, { code: PROGRAMS[work].replaceAll("tools.", "") })),
    async suspend() {
      const result = await call(exec, { code: "await yield_control('wait'); return 1 + 1" });
      if (result.status !== "waiting") throw new Error(`it did not suspend: ${JSON.stringify(result)}`);
      return finish(result);
    },
    async search() {
      return finish(await call(exec, { code: `return (await catalog.search(${JSON.stringify(QUERY)})).length` }));
    },
  };
}

await serve(open);
