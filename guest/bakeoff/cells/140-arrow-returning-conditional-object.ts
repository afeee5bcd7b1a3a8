// returns: [{"ok":true,"value":1},{"ok":false,"error":"neg"}]
const toResult = <T, E = Error>(ok: boolean, v: T, e?: E): { ok: true; value: T } | { ok: false; error: E | undefined } =>
  ok ? { ok: true, value: v } : { ok: false, error: e };
const wrap = (n: number) => (n > 0 ? toResult(true, n) : toResult<number, string>(false, n, "neg"));
return [wrap(1), wrap(-1)];
