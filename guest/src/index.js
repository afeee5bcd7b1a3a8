/**
 * The guest code: the globals of a cell, and the entry points that the host calls.
 *
 * `install` runs once, while the image is built. The host functions it receives and the entry points it returns stay in
 * closures, so that a cell cannot reach them. docs/cells.md describes the globals.
 */
import { createApiFiles } from "./api_files.js";
import { createCatalog } from "./catalog.js";
import { describeFailure, moduleError } from "./failures.js";
import { define } from "./globals.js";
import { isArray, parseJson } from "./intrinsics.js";
import { createMcp } from "./mcp.js";
import { createNamespaces } from "./namespaces.js";
import { installOutput } from "./output.js";
import { createRequests } from "./requests.js";
import { installTimers } from "./timers.js";
import { toJson } from "./values.js";
import { installWebApis } from "./web/index.js";

export function install(global, host) {
  installWebApis(global, { randomBytes: host.random });
  const toModelJson = installOutput(global, host.output);
  const { untilNextTimer, fireTimer } = installTimers(global, host.timers);
  const { request, yieldControl, deliver } = createRequests(host.request, host.pause);
  const catalog = createCatalog(host.shared, request);
  const mcp = createMcp(host.shared, request);
  const apiFiles = createApiFiles(host.shared, request);
  const namespaces = createNamespaces(host.shared, request);
  define(global, "yield_control", yieldControl);
  define(global, "require", (name) => {
    throw moduleError("require(" + toJson(name) + ")");
  });

  return {
    /** Run the program; `main` is the program as an async function. */
    async start(main) {
      let json;
      try {
        json = toModelJson(await main());
      } catch (error) {
        host.failed(describeFailure(error));
        return;
      }
      host.completed(json);
    },
    /** Define global functions that send host requests, from JSON text `["name", ...]`. */
    defineFunctions(json) {
      const names = parseJson(json);
      if (!isArray(names)) return;
      for (let index = 0; index < names.length; index++) {
        const name = names[index];
        const send = (input) => request(name, input, send);
        define(global, name, send);
      }
    },
    /**
     * Define `tools`, `ALL_TOOLS`, `MCP`, `API` and the namespaces whose names are in JSON text `["Issues", ...]`.
     * With `{"only": ["openclaw"]}`, a program has only these namespaces, and no `yield_control`.
     */
    defineCatalog(json) {
      const names = parseJson(json);
      if (isArray(names?.only)) {
        delete global.yield_control;
        namespaces.define(global, names.only);
        return;
      }
      catalog.install(global);
      mcp.install(global);
      apiFiles.install(global);
      define(global, "namespaces", namespaces.define(global, names));
    },
    deliver,
    describeFailure,
    fireTimer,
    moduleError,
    untilNextTimer,
  };
}
