// throws-at: 13
class D {
  [key: string]: unknown;
  static [id: number]: string;
  private readonly m: Map<
    string,
    number
  > = new Map<
    string,
    number
  >();
  get boom(): number {
    return (this.m.get("x") as any).y;
  }
}
return new D().boom;
