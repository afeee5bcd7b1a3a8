// returns: {"truthy":3,"first":"0"}
const vals: unknown[] = [0, "", null, undefined, NaN, [], {}, "0"];
const truthy = vals.filter((v) => !!(v as any) as boolean).length;
const first = (vals.find((v): v is string => typeof v === "string" && v !== "") as string | undefined) ?? "none";
return { truthy, first };
