// returns: {"a":50,"b":140}
type Ev = { t: number; kind: "down" | "up"; key: string };
const evs: Ev[] = [{ t: 0, kind: "down", key: "a" }, { t: 50, kind: "up", key: "a" }, { t: 60, kind: "down", key: "b" }, { t: 200, kind: "up", key: "b" }];
const held: Record<string, number> = {};
const durations = evs.reduce((acc, { t, kind, key }) => {
  if (kind === "down") held[key] = t;
  else acc[key] = t - (held[key] ?? t);
  return acc;
}, {} as { [key: string]: number });
return durations;
