// returns: ["a","neg"]
function fail(msg: string): never { throw new Error(msg); }
const log: string[] = [];
const emit = (m: string): void => void log.push(m);
function check(n: number): number { return n > 0 ? n : fail("neg"); }
emit("a");
try { check(-1); } catch (e) { emit((e as Error).message); }
return log;
