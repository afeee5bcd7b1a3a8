// returns: {"h":1,"e":1,"l":2,"o":1}
return [..."hello"].reduce((m: Record<string, number>, c: string) => ({ ...m, [c]: (m[c] ?? 0) + 1 }), {} as Record<string, number>);
