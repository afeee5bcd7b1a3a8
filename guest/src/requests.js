/**
 * Requests to the host: each is a promise with a stable id, which is settled exactly once.
 *
 * `tools`, `MCP`, namespaces and `yield_control` use it. Only the host can settle a request, because a cell cannot
 * reach the table of requests or the functions that read it.
 */
import { noteHostError } from "./failures.js";
import { captureStackTrace, defineProperty, enumerableKeys, Error, parseJson, Promise } from "./intrinsics.js";
import { quoteName, textProperty, toJson, toText } from "./values.js";

/**
 * `send(text)` sends a request to the host, in three lines: the id, the method and the input. The last two are JSON
 * without line breaks. `pause(id, reason)` reports a yield.
 */
export function createRequests(send, pause) {
  const pending = { __proto__: null };
  let lastId = 0;

  /** `callee` is the function that the program called. */
  function open(announce, callee) {
    const id = ++lastId;
    const entry = { __proto__: null, resolve: undefined, reject: undefined, site: { __proto__: null, stack: "" } };
    const promise = new Promise((resolve, reject) => {
      entry.resolve = resolve;
      entry.reject = reject;
    });
    // The stack of an error from the host starts at the call in the program.
    captureStackTrace(entry.site, callee);
    announce(id);
    pending[id] = entry;
    return promise;
  }

  /** Send `input`, or the text `json` if it is JSON already. */
  function request(method, input, callee, json = toJson(input)) {
    const rest = "\n" + quoteName(method) + "\n" + json;
    return open((id) => send(id + rest), callee);
  }

  function yieldControl(reason) {
    const text = reason === undefined ? "" : toText(reason);
    return open((id) => pause(id, text), yieldControl);
  }

  /** Settle requests from JSON text `[[id, succeeded, value], ...]`; an id that is not pending is ignored. */
  function deliver(json) {
    const settlements = parseJson(json);
    for (let index = 0; index < settlements.length; index++) {
      const settlement = settlements[index];
      const entry = pending[settlement[0]];
      if (entry === undefined) continue;
      delete pending[settlement[0]];
      if (settlement[1]) entry.resolve(settlement[2]);
      else entry.reject(errorFromHost(settlement[2], entry.site.stack));
    }
  }

  return { __proto__: null, request, yieldControl, deliver };
}

/** Create an Error with the data of the host. */
function errorFromHost(data, callSite) {
  const error = new Error(textProperty(data, "message"));
  const names = enumerableKeys(data);
  for (let index = 0; index < names.length; index++) {
    const name = names[index];
    if (name === "message" || name === "stack") continue;
    const enumerable = name !== "name";
    defineProperty(error, name, { __proto__: null, value: data[name], enumerable, writable: true, configurable: true });
  }
  defineProperty(error, "stack", { __proto__: null, value: callSite, writable: true, configurable: true });
  noteHostError(error);
  return error;
}
