// returns: ["deep",2]
namespace A.B.C {
  export const value: string = "deep";
  export let counter = 0;
  export function inc(): number { return ++counter; }
}
A.B.C.inc();
A.B.C.inc();
return [A.B.C.value, A.B.C.counter];
