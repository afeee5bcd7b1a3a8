// throws-at: 12
abstract class Shape {
  abstract area(): number;
  abstract get name(): string;
  protected abstract readonly tags: string[];
  private hidden?: number;
  declare z: string;
}
class Sq extends Shape {
  tags = ["t"];
  get name(): string { return "sq"; }
  area(): number { return (undefined as any).side; }
}
return new Sq().area();
