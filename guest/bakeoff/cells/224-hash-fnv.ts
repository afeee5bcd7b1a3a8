// returns: ["811c9dc5","e40c292c","bf9cf968"]
function fnv1a(s: string): number {
  let h: number = 0x811c9dc5;
  for (let i = 0; i < s.length; i++) {
    h ^= s.charCodeAt(i);
    h = Math.imul(h, 0x01000193) >>> 0;
  }
  return h;
}
return ["", "a", "foobar"].map((s) => fnv1a(s).toString(16));
