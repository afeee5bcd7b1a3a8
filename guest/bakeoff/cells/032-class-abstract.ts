// returns: ["square=9","rect=10"]
abstract class Shape {
  abstract readonly name: string;
  abstract area(): number;
  protected abstract scale?(by: number): void;
  describe(): string { return `${this.name}=${this.area()}`; }
}
class Square extends Shape {
  readonly name = "square";
  constructor(private side: number) { super(); }
  override area(): number { return this.side ** 2; }
}
class Rect extends Shape {
  readonly name = "rect";
  constructor(private w: number, private h: number) { super(); }
  override area(): number { return this.w * this.h; }
}
const shapes: Shape[] = [new Square(3), new Rect(2, 5)];
return shapes.map((s) => s.describe());
