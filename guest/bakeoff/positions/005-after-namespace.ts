// throws-at: 7
namespace N {
  export interface I { a: number }
  export const v: number = 5;
  export namespace M {
    export function boom(): never {
      throw new Error("ns");
    }
  }
}
N.M.boom();
