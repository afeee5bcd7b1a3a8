/**
 * Requests from the guest to the host: a promise with a stable id, settled exactly once.
 *
 * `tools`, `MCP`, namespaces and `yield_control` stand on this. Only the host can settle a request, because
 * neither the table nor the functions that read it are reachable from a cell.
 */
import { noteHostError } from "./failures.js";
import { captureStackTrace, defineProperty, enumerableKeys, Error, parseJson, Promise, quoteJson } from "./intrinsics.js";
import { textProperty, toJson, toText } from "./values.js";

/**
 * `send(text)` tells the host of a request, in three lines: its id, its method and its input, the last two as JSON,
 * which has no line breaks of its own. `pause(id, reason)` tells of a yield.
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
    // An error that comes back from the host points at the call, not at the guest's insides.
    captureStackTrace(entry.site, callee);
    announce(id);
    pending[id] = entry;
    return promise;
  }

  function request(method, input, callee) {
    const rest = "\n" + quoteJson(method) + "\n" + toJson(input);
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

/** A plain guest Error with the host's data on it; no host object ever crosses. */
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
