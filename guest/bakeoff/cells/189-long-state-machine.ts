// returns: {"state":"ready","data":["a","b"],"history":["loading","error","loading","ready"],"reason":"timeout"}
type State = "idle" | "loading" | "ready" | "error";
type Action =
  | { type: "FETCH" }
  | { type: "RESOLVE"; data: string[] }
  | { type: "REJECT"; reason: string }
  | { type: "RESET" };

interface Context { state: State; data: readonly string[]; reason?: string; history: State[] }

const transitions: { readonly [S in State]?: Partial<Record<Action["type"], State>> } = {
  idle: { FETCH: "loading" },
  loading: { RESOLVE: "ready", REJECT: "error" },
  ready: { RESET: "idle", FETCH: "loading" },
  error: { RESET: "idle", FETCH: "loading" },
};

function step(ctx: Context, action: Action): Context {
  const next = transitions[ctx.state]?.[action.type];
  if (!next) return ctx;
  const base: Context = { ...ctx, state: next, history: [...ctx.history, next] };
  switch (action.type) {
    case "RESOLVE": return { ...base, data: action.data };
    case "REJECT": return { ...base, reason: action.reason };
    case "RESET": {
      const { reason: _drop, ...rest } = base;
      return { ...rest, data: [] };
    }
    default: return base;
  }
}

const actions: Action[] = [
  { type: "RESOLVE", data: ["ignored"] },
  { type: "FETCH" },
  { type: "REJECT", reason: "timeout" },
  { type: "FETCH" },
  { type: "RESOLVE", data: ["a", "b"] },
];
return actions.reduce<Context>(step, { state: "idle", data: [], history: [] });
