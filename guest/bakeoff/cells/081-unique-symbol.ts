// returns: ["u1",1,"s"]
declare const brand: unique symbol;
const tag: unique symbol = Symbol("tag");
type Branded<T, B extends string> = T & { readonly [brand]?: B };
type UserId = Branded<string, "UserId">;
const id = "u1" as UserId;
const o = { [tag]: 1 };
class S { static readonly sym: unique symbol = Symbol("s"); }
return [id, o[tag], S.sym.description];
