// returns: [3,2,1]
class ListNode<T> { constructor(public value: T, public next: ListNode<T> | null = null) {} }
class List<T> {
  private head: ListNode<T> | null = null;
  static from<U>(xs: Iterable<U>): List<U> { const l = new List<U>(); for (const x of [...xs].reverse()) l.head = new ListNode<U>(x, l.head); return l; }
  reverse(): List<T> {
    let prev: ListNode<T> | null = null;
    for (let n = this.head; n; ) { const next: ListNode<T> | null = n.next; n.next = prev; prev = n; n = next; }
    this.head = prev;
    return this;
  }
  *[Symbol.iterator](): Generator<T> { for (let n = this.head; n !== null; n = n.next) yield n!.value; }
}
return [...List.from([1, 2, 3]).reverse()];
