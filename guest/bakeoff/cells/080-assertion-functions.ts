// returns: "not a string: number; not ready"
function assert(cond: unknown, msg?: string): asserts cond {
  if (!cond) throw new Error(msg ?? "assertion failed");
}
function assertString(v: unknown): asserts v is string {
  if (typeof v !== "string") throw new TypeError(`not a string: ${typeof v}`);
}
class Guard {
  ready = false;
  ensure(): asserts this is this & { ready: true } { if (!this.ready) throw new Error("not ready"); }
}
const v: unknown = "text";
assertString(v);
assert(v.length === 4, "length");
let message = "";
try { assertString(5); } catch (e) { message = (e as Error).message; }
try { new Guard().ensure(); } catch (e: any) { message += "; " + e.message; }
return message;
