// returns: ["field","default","body Af21"]
const log: string[] = [];
class P {
  field: string = (log.push("field"), "f");
  constructor(readonly a: string, b: number, private c = (log.push("default"), 1)) {
    log.push("body " + this.a + this.field + b + this.c);
  }
}
new P("A", 2);
return log;
