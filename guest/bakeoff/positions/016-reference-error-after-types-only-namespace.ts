// throws-at: 9
namespace OnlyTypes {
  export type A = string;
  export interface B {
    b: number;
  }
}
type C = OnlyTypes.A;
return missingVariable as C;
