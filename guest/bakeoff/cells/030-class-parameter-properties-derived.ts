// returns: "BOX:3:t|new"
class Base {
  constructor(protected name: string) {}
}
class Derived extends Base {
  tags: string[] = ["t"];
  constructor(name: string, public readonly size: number, extra?: string) {
    super(name.toUpperCase());
    if (extra) this.tags.push(extra);
  }
  describe(): string { return `${this.name}:${this.size}:${this.tags.join("|")}`; }
}
return new Derived("box", 3, "new").describe();
