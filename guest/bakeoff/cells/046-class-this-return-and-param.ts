// returns: ["gogo","5!",1]
class Btn {
  label = "go";
  click(this: Btn, times: number): string { return this.label.repeat(times); }
}
function report(this: { n: number }, suffix: string): string { return this.n + suffix; }
function only(this: void): number { return 1; }
return [new Btn().click(2), report.call({ n: 5 }, "!"), only()];
