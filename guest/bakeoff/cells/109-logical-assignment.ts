// returns: {"retries":3,"on":false,"name":"anon","extra":{}}
interface Opts { retries?: number | null; name?: string; on?: boolean }
const o: Opts = { retries: null, on: true };
o.retries ??= 3;
o.name ||= "anon";
o.on &&= false;
(o as any).extra ??= {} as Record<string, number>;
return o;
