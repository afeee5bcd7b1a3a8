// returns: ["open a","open b","work","close b","close a"]
const log: string[] = [];
class Res implements Disposable {
  constructor(readonly name: string) { log.push(`open ${name}`); }
  [Symbol.dispose](): void { log.push(`close ${this.name}`); }
}
{
  using a = new Res("a");
  using b: Res = new Res("b");
  log.push("work");
}
return log;
