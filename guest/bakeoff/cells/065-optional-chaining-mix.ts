// returns: ["found","missing",-1,"found",0.5]
type Deep = { a?: { b?: Array<{ c?: () => string }> } };
const d1: Deep = { a: { b: [{ c: () => "found" }] } };
const d2: Deep = {};
const get = (d: Deep): string => d.a?.b?.[0]?.c?.() ?? "missing";
const len = d2?.a?.b?.length ?? -1;
const bang = d1.a?.b![0]!.c!();
const tern = d1.a ? .5 : 1;
return [get(d1), get(d2), len, bang, tern];
