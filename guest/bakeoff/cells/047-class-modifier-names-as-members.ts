// returns: [1,2,3,4,5,6,7,8,1,9,10,"t"]
class Odd {
  public = 1;
  private = 2;
  static = 3;
  readonly = 4;
  declare = 5;
  abstract() { return 6; }
  override() { return 7; }
  get() { return 8; }
  set(v: number) { return v; }
  async() { return 9; }
  static static() { return 10; }
  type?: string = "t";
}
const o = new Odd();
return [o.public, o.private, o.static, o.readonly, o.declare, o.abstract(), o.override(), o.get(), o.set(1), o.async(), Odd.static(), o.type];
