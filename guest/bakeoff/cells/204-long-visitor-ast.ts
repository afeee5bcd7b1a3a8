// returns: [-10,"(2 + -3 * 4)"]
namespace Ast {
  export enum Kind { Lit, Add, Mul, Neg }
  export interface Base<K extends Kind> { readonly kind: K }
  export interface Lit extends Base<Kind.Lit> { value: number }
  export interface Bin<K extends Kind.Add | Kind.Mul> extends Base<K> { l: Node; r: Node }
  export interface Neg extends Base<Kind.Neg> { e: Node }
  export type Node = Lit | Bin<Kind.Add> | Bin<Kind.Mul> | Neg;
  export const lit = (value: number): Lit => ({ kind: Kind.Lit, value });
  export const add = (l: Node, r: Node): Bin<Kind.Add> => ({ kind: Kind.Add, l, r });
  export const mul = (l: Node, r: Node): Bin<Kind.Mul> => ({ kind: Kind.Mul, l, r });
  export const neg = (e: Node): Neg => ({ kind: Kind.Neg, e });
}
interface Visitor<R> {
  [Ast.Kind.Lit](n: Ast.Lit): R;
  [Ast.Kind.Add](n: Ast.Bin<Ast.Kind.Add>): R;
  [Ast.Kind.Mul](n: Ast.Bin<Ast.Kind.Mul>): R;
  [Ast.Kind.Neg](n: Ast.Neg): R;
}
const visit = <R,>(n: Ast.Node, v: Visitor<R>): R => (v[n.kind] as (n: Ast.Node) => R)(n);
const evalV: Visitor<number> = {
  [Ast.Kind.Lit]: (n) => n.value,
  [Ast.Kind.Add]: (n) => visit(n.l, evalV) + visit(n.r, evalV),
  [Ast.Kind.Mul]: (n) => visit(n.l, evalV) * visit(n.r, evalV),
  [Ast.Kind.Neg]: (n) => -visit(n.e, evalV),
};
const showV: Visitor<string> = {
  [Ast.Kind.Lit](n) { return String(n.value); },
  [Ast.Kind.Add](n): string { return `(${visit(n.l, this)} + ${visit(n.r, this)})`; },
  [Ast.Kind.Mul](n): string { return `${visit(n.l, this)} * ${visit(n.r, this)}`; },
  [Ast.Kind.Neg](n): string { return `-${visit(n.e, this)}`; },
};
const tree: Ast.Node = Ast.add(Ast.lit(2), Ast.mul(Ast.neg(Ast.lit(3)), Ast.lit(4)));
return [visit(tree, evalV), visit(tree, showV)];
