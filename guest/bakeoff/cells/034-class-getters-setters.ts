// returns: [100,212,-273.15]
class Temp {
  private _c: number = 0;
  get celsius(): number { return this._c; }
  set celsius(v: number) { this._c = v; }
  get fahrenheit(): number { return this._c * 9 / 5 + 32; }
  set fahrenheit(v: number) { this._c = (v - 32) * 5 / 9; }
  static readonly ZERO: number = -273.15;
}
const t = new Temp();
t.fahrenheit = 212;
return [t.celsius, t.fahrenheit, Temp.ZERO];
