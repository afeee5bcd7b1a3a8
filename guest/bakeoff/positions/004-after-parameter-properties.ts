// throws-at: 8
class P {
  x: number = 1;
  constructor(
    public readonly a: string,
    private b: number = 2,
  ) {
    if (this.b === 2) throw new Error("ctor");
  }
}
return new P("a");
