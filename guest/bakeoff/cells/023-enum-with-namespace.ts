// returns: [1,0,"Kilo"]
enum Unit { Gram, Kilo }
namespace Unit {
  export function parse(s: string): Unit {
    return s === "kg" ? Unit.Kilo : Unit.Gram;
  }
}
return [Unit.parse("kg"), Unit.parse("g"), Unit[Unit.parse("kg")]];
