// returns: [{"type":"t","declare":1,"interface":true,"module":1,"abstract":2},1]
type type = { type: string; declare: number; interface: boolean; namespace?: string; module: 1; abstract: 2 };
interface of { readonly readonly: string; get: number; set(set: number): void; async?: boolean }
const t: type = {
  type: "t",
  declare: 1,
  interface: true,
  module: 1,
  abstract: 2,
};
let o: of
(o as any) = { readonly: "r", get: 1, set(set: number): void {} }
return [t, (o as of).get];
