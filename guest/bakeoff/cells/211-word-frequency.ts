// returns: {"the":3,"and":2,"bat":1}
const text: string = "the cat and the hat and the bat";
const freq = text.split(" ").reduce<Map<string, number>>((m, w) => m.set(w, (m.get(w) ?? 0) + 1), new Map());
const top: [string, number][] = [...freq.entries()].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, 3);
return Object.fromEntries(top);
