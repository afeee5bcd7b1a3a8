// returns: [{"a":1,"b":2},"one","none"]
interface Scores { [name: string]: number; readonly [Symbol.iterator]?: any }
interface Nested { [k: string]: { [k: number]: string } | undefined }
const s: Scores = { a: 1 };
const n: Nested = { x: { 1: "one" } };
s["b"] = 2;
return [s, n.x?.[1], n["y"]?.[2] ?? "none"];
