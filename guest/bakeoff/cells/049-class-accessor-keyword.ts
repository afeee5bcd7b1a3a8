// returns: [8,5,0]
class Acc {
  accessor count: number = 2;
  static accessor total = 5;
}
const a = new Acc();
a.count *= 4;
return [a.count, Acc.total, Object.keys(a).length];
