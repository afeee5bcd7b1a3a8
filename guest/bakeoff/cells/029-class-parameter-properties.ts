// returns: ["p(1, 2)","q(3, 4)",["x","y","label"]]
class Point {
  constructor(public x: number, public y: number, private readonly label: string = "p") {}
  toString(): string {
    return `${this.label}(${this.x}, ${this.y})`;
  }
}
return [new Point(1, 2).toString(), String(new Point(3, 4, "q")), Object.keys(new Point(0, 0))];
