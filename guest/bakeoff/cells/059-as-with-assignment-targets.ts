// returns: [{"v":10,"w":20,"z":30,"i":8,"p":1,"q":2},[9,7]]
let box: unknown = { v: 1 };
(box as { v: number }).v = 10;
(box as any).w = 20;
(<any>box).z = 30;
let arr: number[] | null = [1, 2];
(arr as number[])[0] = 9;
arr![1]! += 5;
for ((box as any).i of [7, 8]) {}
[(box as any).p, (box as any)["q"]] = [1, 2];
return [box, arr];
