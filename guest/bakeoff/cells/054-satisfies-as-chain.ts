// returns: [3,"dark"]
const cfg = { mode: "dark", size: 2 } as const satisfies { mode: string; size: number };
const n = (cfg.size satisfies number as number) + (1 as unknown as number);
const deep = ((cfg as any) as Record<string, unknown>)["mode"] as string;
return [n, deep];
