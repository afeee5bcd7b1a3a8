// returns: [5,1]
const seen: string[] = [];
const note = (name: string) => (_v: unknown, ctx: { kind: string; name: string | symbol }) => { seen.push(`${name}:${ctx.kind}:${String(ctx.name)}`); };
@note("cls")
class M {
  @note("f") private field: number = 1;
  @note("g") get g(): number { return this.field; }
  @note("m1") @note("m2") run(): void {}
}
return [seen.length, new M().g];
