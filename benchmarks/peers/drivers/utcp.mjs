// UTCP code mode: V8 isolates of isolated-vm within the process.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { PROGRAMS, QUERY, add, generatedTool, serve, slow } from "./serve.mjs";

const load = createRequire(`${process.env.PEER_DIRECTORY}/package.json`);
const { addFunctionToUtcpDirectCall } = await import(pathToFileURL(load.resolve("@utcp/direct-call")));
const { CodeModeUtcpClient } = await import(pathToFileURL(load.resolve("@utcp/code-mode")));

function describe(name, description, schema) {
  return {
    name,
    description,
    inputs: schema,
    outputs: { type: "object", properties: {} },
    tags: [],
    tool_call_template: { call_template_type: "direct-call", callable_name: name },
  };
}

async function open(toolCount) {
  const number = { type: "number" };
  const tools = [
    describe("add", "Add two numbers.", { type: "object", properties: { a: number, b: number } }),
    describe("slow", "Wait.", { type: "object", properties: { n: number } }),
  ];
  for (let n = 0; n < toolCount - 2; n++) {
    const { name, description, schema } = generatedTool(n);
    tools.push(describe(name, description, schema));
  }
  // The members of the input become positional arguments.
  addFunctionToUtcpDirectCall("add", async (a, b) => add(a, b));
  addFunctionToUtcpDirectCall("slow", slow);
  addFunctionToUtcpDirectCall("manual", async () => ({ utcp_version: "1.0.0", manual_version: "1.0.0", tools }));
  const client = await CodeModeUtcpClient.create(process.cwd());
  const registered = await client.registerManual({
    name: "bench",
    call_template_type: "direct-call",
    callable_name: "manual",
  });
  if (!registered.success) throw new Error(`the tools were not registered: ${registered.errors}`);
  return {
    async run(work) {
      const { result, logs } = await client.callToolChain(PROGRAMS[work].replaceAll("tools.", "bench."));
      if (result === null) throw new Error(logs.join("\n"));
      return result;
    },
    async search() {
      return (await client.searchTools(QUERY, 8)).length;
    },
    reasons: { suspend: "cannot suspend" },
  };
}

await serve(open);
