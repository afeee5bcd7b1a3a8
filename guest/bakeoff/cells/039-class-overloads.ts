// returns: ["3.14","ABC"]
class Formatter {
  format(v: number): string;
  format(v: string, upper: boolean): string;
  format(v: Date): never;
  format(v: number | string | Date, upper?: boolean): string {
    if (typeof v === "number") return v.toFixed(2);
    return upper ? String(v).toUpperCase() : String(v);
  }
  constructor();
  constructor(readonly prefix?: string) {}
}
const f = new Formatter();
return [f.format(3.14159), f.format("abc", true)];
