// returns: [["a",1],["b",2],["c",3]]
class Registry {
  static readonly entries: Map<string, number> = new Map();
  static {
    Registry.entries.set("a", 1);
    this.entries.set("b", 2);
  }
  private static next: number = 3;
  static add(k: string): number { this.entries.set(k, this.next); return this.next++; }
}
Registry.add("c");
return [...Registry.entries];
