// returns: ["T",1]
function tagged(target: any, _ctx?: unknown): void { target.tag = "T"; }
@tagged
class A {
  n: number = 1;
}
return [(A as any).tag, new A().n];
