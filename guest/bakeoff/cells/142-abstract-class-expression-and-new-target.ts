// returns: [4,"abstract!"]
const Base = (() => {
  abstract class Base {
    constructor() { if (new.target === Base) throw new TypeError("abstract!"); }
    abstract run(): number;
  }
  return Base;
})();
class Impl extends Base { run(): number { return 4; } }
let msg = "";
try { new (Base as any)(); } catch (e) { msg = (e as Error).message; }
return [new Impl().run(), msg];
