// returns: [2,"giu",10,5,10,"103","y",2,3,1,10]
const a = 20, g = 2, b: number = 5;
const q = a / b / g;
const re = /[/\]"']+\/(?<x>a|b)/giu;
const t = (a) / 2;
const u = [a][0]! / 4;
const v = a! / g / 1;
const w = `${a / 2}` + "a/b/c".split(/\//).length;
const s = "x/y".replace(/x\/(y)/, (_m: string, p: string): string => p);
const h = { a: 4 }.a / 2;
let i = 4; i /= 2;
const k = i++ / 2;
if (a) /re/.test("re");
return [q, re.flags, t, u, v, w, s, h, i, k, a as number / 2];
