// returns: [6,"triple",[1],{"a":1},[],["w",1],"a",["r"]]
const fnWithProps: { (x: number): number; label: string; new?(): void } = Object.assign((x: number) => x * 3, { label: "triple" });
const dict: { readonly [k: string]: readonly number[] } = { a: [1] };
let u: { a: 1 } | { b: 2 } & { c?: 3 } = { a: 1 };
let v: (string)[] = [], w: [string, ...(number | undefined)[]] = ["w", 1];
let k: keyof { a: 1; b: 2 } = "a", r: readonly string[] = ["r"];
return [fnWithProps(2), fnWithProps.label, dict.a, u, v, w, k, r];
