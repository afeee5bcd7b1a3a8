// returns: [3,"日本",1,4,3,1]
const größe: number = 3;
const 名前: string = "日本";
const emoji = "🎉" as const;
const esc: string = "\u{1F600}\x41\u0042";
interface Ключ { значение: number }
const o: Ключ = { значение: größe };
const \u0061bc: number = 1;
return [größe, 名前, [...emoji].length, esc.length, o.значение, abc];
