// returns: 42
namespace App {
  export namespace Util {
    export const double = (n: number): number => n * 2;
  }
  export namespace Model {
    export class Item {
      constructor(public readonly id: number) {}
    }
  }
}
const it = new App.Model.Item(21);
return App.Util.double(it.id);
