// returns: [12,1,"last",3]
let a = 1, b: number = 2, c!: string;
a++, b--;
c = (a, b, "last" as string);
const fn = (x: number, y = (1, 2) as number): number => x + y;
for (let i = 0, j: number = 10; i < j; i++, j--) a += i;
return [a, b, c, fn(1)];
