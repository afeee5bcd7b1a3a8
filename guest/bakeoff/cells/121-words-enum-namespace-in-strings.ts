// returns: [3,28]
const src = `enum A { B } namespace N { export const x = 1 } declare module "m" {}`;
const o = { enum: 1, namespace: 2, interface: 3, type: 4, declare: 5, module: 6, abstract: 7 };
return [src.match(/\b(enum|namespace|declare)\b/g)!.length, Object.values(o).reduce((a, b) => a + b)];
