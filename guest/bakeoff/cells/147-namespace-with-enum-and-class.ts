// returns: [12,"toy"]
namespace Shop {
  export enum Kind { Book = "book", Toy = "toy" }
  export abstract class Item { constructor(readonly kind: Kind, readonly price: number) {} }
  export class Book extends Item { constructor(price: number) { super(Kind.Book, price); } }
  let sold = 0;
  export function sell(i: Item): number { sold += i.price; return sold; }
}
Shop.sell(new Shop.Book(5));
return [Shop.sell(new Shop.Book(7)), Shop.Kind.Toy];
