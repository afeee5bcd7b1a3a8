// returns: ["u",123,["admin"]]
type Ctor<T = {}> = new (...args: any[]) => T;
function Timestamped<TBase extends Ctor>(Base: TBase) {
  return class extends Base {
    stamp: number = 123;
  };
}
function Tagged<TBase extends Ctor>(Base: TBase) {
  return class Tagged extends Base {
    tags = new Set<string>();
    tag(t: string) { this.tags.add(t); return this; }
  };
}
class User { name = "u"; }
const Mixed = Tagged(Timestamped(User));
const m = new Mixed().tag("admin");
return [m.name, m.stamp, [...m.tags]];
