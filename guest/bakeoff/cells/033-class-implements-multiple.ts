// returns: ["bag",2,[3,4]]
interface Named { name: string }
interface Sized { size(): number }
class Bag<T> implements Named, Sized, Iterable<T> {
  name = "bag";
  private items: T[] = [];
  add(item: T): this { this.items.push(item); return this; }
  size(): number { return this.items.length; }
  *[Symbol.iterator](): IterableIterator<T> { yield* this.items; }
}
const bag = new Bag<number>().add(3).add(4);
return [bag.name, bag.size(), [...bag]];
