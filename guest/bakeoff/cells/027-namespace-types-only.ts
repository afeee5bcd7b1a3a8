// returns: {"id":"t1"}
namespace Types {
  export type Id = string;
  export interface Thing { id: Id }
}
const t: Types.Thing = { id: "t1" };
return t;
