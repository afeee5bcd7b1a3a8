// returns: {"n":3,"errors":["failed: timeout"]}
type Level = "INFO" | "WARN" | "ERROR";
interface Entry { level: Level; at: number; msg: string }
const raw = `[INFO] 100 started
[WARN] 150 slow query (took 30ms)
garbage
[ERROR] 200 failed: timeout`;
const parse = (line: string): Entry | undefined => {
  const m = line.match(/^\[(?<level>INFO|WARN|ERROR)\] (?<at>\d+) (?<msg>.*)$/);
  if (!m?.groups) return;
  const { level, at, msg } = m.groups as { level: Level; at: string; msg: string };
  return { level, at: +at, msg };
};
const entries = raw.split("\n").map(parse).filter((e): e is Entry => e !== undefined);
return { n: entries.length, errors: entries.filter((e) => e.level === "ERROR").map((e) => e.msg) };
