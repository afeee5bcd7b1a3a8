// returns: "abab"
function f(a: { x: number }, b: string): string { return b.repeat(a.x); }
return f({ x: 2 } satisfies { x: number }, "ab" satisfies string);
